"""Measured times of training: what a row counts, and that a run writes them beside its metrics."""

from types import SimpleNamespace

import numpy as np
import programs
import pytest
import runs

from hetero_tf.run import timings
from hetero_tf.store import metrics


def test_a_row_counts_the_clients_and_steps_of_its_rounds():
    planned = [SimpleNamespace(steps=np.asarray(steps, np.int32)) for steps in ([3, 2, 0], [1, 0, 0])]
    parts = {"planning": 0.1, "training": 1.25, "merging": 0.25, "measuring": 0.5, "sealing": None}
    assert timings.of_call(7, planned, 30, 1.5, parts) == {
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
        **{f"{name}_seconds": seconds for name, seconds in parts.items()},
    }
    nobody = timings.of_call(1, [SimpleNamespace(steps=np.zeros(2, np.int32))], 0, 1.0, parts)
    assert (nobody["client_seconds"], nobody["step_seconds"], nobody["examples_per_second"]) == (None, None, 0.0)


def test_a_run_writes_a_row_for_each_call_and_keeps_them_out_of_its_metrics(train, tmp_path):
    train(tmp_path / "run", programs.RECIPE, "checkpoint.every=2", "evaluate.every=2")
    found = metrics.rows(tmp_path / "run" / "timings.jsonl")
    assert [(row["round"], row["rounds"], row["clients"]) for row in found] == [(2, 2, 4), (4, 2, 4)]
    assert all(row["seconds"] > 0 and row["steps"] >= row["clients"] for row in found)
    for row in found:
        assert row["training_seconds"] + row["merging_seconds"] == pytest.approx(row["seconds"], abs=1e-4)
        assert min(row["planning_seconds"], row["merging_seconds"]) > 0
        assert row["measuring_seconds"] > 0.001 and row["sealing_seconds"] > 0
    assert not any("second" in name for row in runs.rows(tmp_path / "run") for name in row)


def test_shares_begin_with_the_largest_and_leave_out_what_rounds_to_nothing():
    parts = {"planning": 50.0, "training": 1.0, "merging": None, "measuring": 0.0, "sealing": 0.001}
    assert timings.shares([parts, parts | {"measuring": 6.0}]) == "measuring 75 %, training 25 %"
