"""Measured times of training: what a row counts, and that a run writes them beside its metrics."""

from types import SimpleNamespace

import numpy as np
import programs
import runs

from hetero_tf.run import timings
from hetero_tf.store import metrics


def test_a_row_counts_the_clients_and_steps_of_its_rounds():
    planned = [SimpleNamespace(steps=np.asarray(steps, np.int32)) for steps in ([3, 2, 0], [1, 0, 0])]
    assert timings.of_call(7, planned, 30, 1.5) == {
        "round": 7,
        "rounds": 2,
        "seconds": 1.5,
        "clients": 3,
        "steps": 6,
        "examples": 30,
        "round_seconds": 0.75,
        "client_seconds": 0.5,
        "step_seconds": 0.25,
        "examples_per_second": 20.0,
    }
    nobody = timings.of_call(1, [SimpleNamespace(steps=np.zeros(2, np.int32))], 0, 1.0)
    assert (nobody["client_seconds"], nobody["step_seconds"], nobody["examples_per_second"]) == (None, None, 0.0)


def test_a_run_writes_a_row_for_each_call_and_keeps_them_out_of_its_metrics(train, tmp_path):
    train(tmp_path / "run", programs.RECIPE, "checkpoint.every=2", "evaluate.every=2")
    found = metrics.rows(tmp_path / "run" / "timings.jsonl")
    assert [(row["round"], row["rounds"], row["clients"]) for row in found] == [(2, 2, 4), (4, 2, 4)]
    assert all(row["seconds"] > 0 and row["steps"] >= row["clients"] for row in found)
    assert not any("second" in name for row in runs.rows(tmp_path / "run") for name in row)
