"""Live logging: to MLflow's local store and W&B's offline mode, resumed, unreachable, hanging and missing trackers."""

import functools
import json
import os
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from refusals import refusal

from hetero_tf.base import processes
from hetero_tf.base.version import __version__
from hetero_tf.runs import metrics_file, trackers
from hetero_tf.runs.run_folder import RunFolder

ADVICE = "the training continues, and the same command logs the missing rounds"


@pytest.fixture(autouse=True)
def cleanup():
    """Later tests of this process call `main`, which must not end it."""
    yield
    processes.SKIPS_CLEANUP.clear()


class Stopped(Exception):
    """A run that ends with an error."""


@pytest.fixture
def sweep_run(write_run):
    """A run of three rounds, the second without evaluation, in the folder of a sweep."""
    run = RunFolder(Path(write_run("methods/digits-1", [10.0, None, 30.0], "seed=1", more={"text": "x"})))
    (run.path.parent / "sweep.yaml").write_text("")
    return run


def log_twice(name, run):
    """Log a run of three rounds and, after another process has trained a fourth, its failed continuation."""
    messages = []
    with trackers.log_live((name,), run, messages.append):
        pass
    first = json.loads(getattr(run, name).read_text())
    metrics_file.append(run.metrics, {"round": 4, "loss": 0.5})
    # wandb names the folder of an offline run after the second.
    time.sleep(1)
    with pytest.raises(Stopped), trackers.log_live((name,), run, messages.append):
        raise Stopped
    assert json.loads(getattr(run, name).read_text()) == {"id": first["id"], "round": 4} and first["round"] == 3
    assert [message.partition(":")[0] for message in messages] == [f"logging to {name}"] * 2
    return first["id"]


@pytest.mark.long
def test_mlflow_has_each_round_once(sweep_run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    # MLflow 3 asks for this before it writes to a folder.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = mlflow.MlflowClient(f"file:{tmp_path}/mlruns")
    logged = client.get_run(log_twice("mlflow", sweep_run))
    assert (logged.info.run_name, logged.info.status) == ("digits-1", "FAILED")
    assert client.get_experiment(logged.info.experiment_id).name == "hetero_tf"
    tags = {"method": "HeteroFL", "seed": "1", "levels": "a-b-c", "sweep": "methods"}
    assert logged.data.tags.items() >= tags.items()
    assert logged.data.params["optimizer.learning_rate"] == "0.05" and logged.data.params["levels.mix"] == "a-b-c"
    history = {name: [(metric.step, metric.value) for metric in client.get_metric_history(logged.info.run_id, name)]
               for name in ("global_accuracy", "loss")}  # fmt: skip
    assert history == {"global_accuracy": [(1, 10), (3, 30)], "loss": [(1, 1), (2, 1 / 2), (3, 1 / 3), (4, 0.5)]}


def offline_records(path):
    """The records of W&B's offline file: 7 bytes, then a LevelDB log with blocks of 32 KiB."""
    data, position, record = path.read_bytes(), 7, b""
    while position < len(data):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        length, kind = struct.unpack_from("<4xHB", data, position)
        record += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield record
            record = b""


@pytest.mark.long
def test_wandb_has_each_round_once(sweep_run, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run_id, records = log_twice("wandb", sweep_run), []
    for path in sorted(tmp_path.glob(f"wandb/offline-run-*-{run_id}/*.wandb"), key=os.path.getmtime):
        records += map(Record.FromString, offline_records(path))
    runs = [record.run for record in records if record.HasField("run")]
    assert {(run.run_id, run.display_name, run.run_group, run.project) for run in runs} == {
        (run_id, "digits-1", "methods", "hetero_tf")
    }
    assert {"seed: 1", "levels: a-b-c", "method: HeteroFL"} <= set(runs[0].tags)
    configuration = {item.key: item.value_json for item in runs[0].config.update}
    assert configuration["optimizer.learning_rate"] == "0.05"
    rows = [{"".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            for record in records if record.HasField("history")]  # fmt: skip
    assert [(row["round"], row["loss"], row.get("global_accuracy")) for row in rows] == [
        (1, 1, 10), (2, 1 / 2, None), (3, pytest.approx(1 / 3), 30), (4, 0.5, None)
    ]  # fmt: skip
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0, 1]


def test_unreachable_server_warns_once_and_names_the_cause(sweep_run, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    messages = []
    with trackers.log_live(("mlflow",), sweep_run, messages.append):
        pass
    (message,) = messages
    assert message.startswith("warning: --log mlflow failed: API request to http://127.0.0.1:9/")
    # A URL is quoted whole or not at all.
    assert "url: " not in message or message.split("url: ")[1].startswith(("/api/2.0/mlflow/", "..."))
    assert message.endswith(f"; check MLFLOW_TRACKING_URI and its server; {ADVICE}") and not sweep_run.mlflow.exists()


class SilentTracker:
    """A tracker whose server does not respond from some call on."""

    id, address = "1", "nowhere"

    def __init__(self, description, run_id, hanging=""):
        self.hanging, self.rows, self.succeeded = hanging, [], None
        self.wait("init")

    def wait(self, call):
        if call == self.hanging:
            threading.Event().wait(60)

    def log(self, rows):
        self.wait("log")
        self.rows += rows

    def finish(self, succeeded):
        self.wait("finish")
        self.succeeded = succeeded


@pytest.mark.parametrize("call", ["init", "log", "finish"])
def test_hanging_tracker_ends_with_the_run(sweep_run, monkeypatch, call):
    monkeypatch.setattr(trackers, "MAX_FLUSH_SECONDS", 0.1)
    monkeypatch.setitem(trackers.TRACKERS, "wandb", functools.partial(SilentTracker, hanging=call))
    messages, began = [], time.monotonic()
    with trackers.log_live(("wandb",), sweep_run, messages.append):
        pass
    assert time.monotonic() - began < 5 and processes.SKIPS_CLEANUP.is_set()
    assert messages[-1] == f"warning: --log wandb did not receive all rounds in time; {ADVICE}"


def test_failing_tracker_is_reported_and_the_block_goes_on(sweep_run, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "wandb", functools.partial(SilentTracker, hanging=None))
    monkeypatch.setattr(SilentTracker, "log", lambda self, rows: 1 / 0)
    messages = []
    with trackers.log_live(("wandb",), sweep_run, messages.append):
        pass
    assert processes.SKIPS_CLEANUP.is_set() and messages == [
        "logging to wandb: nowhere",
        f"warning: --log wandb failed: division by zero; check {trackers.SETTINGS['wandb']}; {ADVICE}",
    ]


def test_a_signal_marks_the_run_as_failed(sweep_run, monkeypatch):
    started = []
    monkeypatch.setattr(trackers, "PAUSE", 0.01)
    monkeypatch.setitem(trackers.TRACKERS, "mlflow", lambda *words: started.append(SilentTracker(*words)) or started[0])
    with trackers.log_live(("mlflow",), sweep_run, lambda message: None):
        # The handler of the command line, which ends the process afterwards.
        processes.run_actions()
        (tracker,) = started
        assert tracker.succeeded is False and [round for round, _ in tracker.rows] == [1, 2, 3]


def test_program_ends_despite_the_exit_handlers_of_a_failed_tracker(tmp_path):
    program = (
        "import atexit, sys, time; from hetero_tf.base import processes; from hetero_tf.cli import main\n"
        "processes.SKIPS_CLEANUP.set(); atexit.register(time.sleep, 60); sys.exit(main.main(['hetero_tf', '--version']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")


def test_unknown_trackers_missing_ones_and_damaged_progress_are_refused(monkeypatch, tmp_path):
    assert refusal(trackers.check_trackers, ["mlfow"]) == (
        "--log: no such tracker; did you mean 'mlflow'? Received: --log=mlfow"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refusal(trackers.check_trackers, ["wandb"]) == (
        "--log wandb needs wandb, which is not installed; pip install 'hetero_tf[wandb]'"
    )
    path = tmp_path / "wandb.json"
    path.write_text('{"id": "../x", "round": 1}')
    assert refusal(trackers.read_progress, path) == (
        f"{path}: id must be text like [0-9A-Za-z_-]{{1,64}}. Received: '../x'; delete the file"
    )
