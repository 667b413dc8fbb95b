"""Measured times of training: what a row counts, and that a run writes them beside its metrics."""

import io
import re
import time
from types import SimpleNamespace

import numpy as np
import programs
import pytest
import runs

from hetero_tf.base.console import Console, ProgressDisplay
from hetero_tf.run import loop
from hetero_tf.run.learning_process import LearningProcess
from hetero_tf.runs import metrics_file

train_stub = runs.train_stub


def test_a_row_counts_the_clients_and_steps_of_its_rounds():
    planned = [SimpleNamespace(steps=np.asarray(steps, np.int32)) for steps in ([3, 2, 0], [1, 0, 0])]
    parts = {"planning": 0.1, "training": 1.25, "merging": 0.25, "measuring": 0.5, "sealing": None}
    counts = {"round": 7, "rounds": 2, "seconds": 1.5, "clients": 3, "steps": 6, "examples": 30}
    means = {"round_seconds": 0.75, "client_seconds": 0.5, "step_seconds": 0.25, "examples_per_second": 20.0}
    expected = counts | means | {f"{name}_seconds": seconds for name, seconds in parts.items()}
    assert metrics_file.call_row(7, planned, 30, 1.5, parts) == expected
    empty = metrics_file.call_row(1, [SimpleNamespace(steps=np.zeros(2, np.int32))], 0, 1.0, parts)
    assert (empty["client_seconds"], empty["step_seconds"], empty["examples_per_second"]) == (None, None, 0.0)


def test_a_run_writes_a_row_for_each_call_and_keeps_them_out_of_its_metrics(train_stub, tmp_path, monkeypatch):
    evaluate = LearningProcess.evaluate
    monkeypatch.setattr(LearningProcess, "evaluate", lambda *values: (time.sleep(0.01), evaluate(*values))[1])
    train_stub(tmp_path / "run", programs.RECIPE, "checkpoint.every=2", "evaluate.every=2")
    rows = metrics_file.rows(tmp_path / "run" / "timings.jsonl")
    assert [(row["round"], row["rounds"], row["clients"]) for row in rows] == [(2, 2, 4), (4, 2, 4)]
    assert all(row["seconds"] > 0 and row["steps"] >= row["clients"] for row in rows)
    for row in rows:
        assert row["training_seconds"] + row["merging_seconds"] == pytest.approx(row["seconds"], abs=1e-4)
        assert min(row["planning_seconds"], row["merging_seconds"]) > 0
        assert row["measuring_seconds"] > 0.01 and row["sealing_seconds"] > 0
    assert not any("second" in name for row in runs.rows(tmp_path / "run") for name in row)


def test_shares_begin_with_the_largest_and_leave_out_what_rounds_to_nothing():
    parts = {"planning": 50.0, "training": 1.0, "merging": None, "measuring": 0.0, "sealing": 0.001}
    assert metrics_file.shares([parts, parts | {"measuring": 6.0}]) == "measuring 75 %, training 25 %"


def test_the_time_left_excludes_the_first_call():
    assert metrics_file.seconds_left([(2, 12.0)], 58) is None
    assert metrics_file.seconds_left([(2, 12.0), (2, 1.5), (1, 1.5)], 58) == 58.0


def test_the_time_left_is_that_of_the_calls_after_the_first_one(train_stub, tmp_path, monkeypatch):
    """Graphs that are optimised before the first step, and the first evaluation, do not come again."""
    seconds = [0.0]
    advance, evaluate, seen = loop.advance, LearningProcess.evaluate, ProgressDisplay.add_progress

    def later(by, function):
        def call(*arguments):
            seconds[0] += by(arguments)
            return function(*arguments)

        return call

    monkeypatch.setattr(loop, "advance", later(lambda arguments: 100 * (arguments[1].round == 0), advance))
    first = later(lambda arguments: 50 * (arguments[1].round == 1), evaluate)
    monkeypatch.setattr(LearningProcess, "evaluate", first)
    monkeypatch.setattr(ProgressDisplay, "add_progress", later(lambda arguments: arguments[1], seen))
    printed = io.StringIO()
    train_stub(tmp_path / "run", programs.RECIPE, console=Console(printed, lambda: seconds[0]))
    left = re.findall(r"round ./4 .*?(\d.*) left", printed.getvalue())
    assert [text.rpartition("  ")[2] for text in left] == ["8 s", "4 s"]
