"""Files of events: TensorBoard's own reader finds every number, and they are written over as a whole."""

import pytest
from refusals import refusal

from hetero_tf.cli import interrupts, main
from hetero_tf.reports import events
from hetero_tf.runs.history import gather
from hetero_tf.store.run_folder import RunFolder

ROWS = [(1, "global/global_accuracy", 10.0), (2, "global/global_accuracy", 30.0), (2, "levels/c", 1.0)]


def test_scalars_are_all_numbers_of_a_run(write_run):
    ((run,), _) = gather([write_run("one", [10.0, 30.0], more={"text": "x", "flag": True, "none": None}, seconds=2.0)])
    scalars = list(events.scalars(run))
    assert set(ROWS) <= set(scalars) and (2, "time/measuring_seconds", 1.0) in scalars
    tags = {tag for _, tag, _ in scalars}
    assert {"bytes/bytes", "loss/loss", "train/train_flops"} <= tags
    assert not {tag for tag in tags if tag.rpartition("/")[2] in ("round", "text", "flag", "none", "merging_seconds")}


def test_tensorboard_reads_the_event_files(write_run, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    runs, _ = gather([write_run("x/one", [10.0, 30.0], seconds=2.0), write_run("y/one", [20.0], "seed=1")])
    for _ in range(2):
        paths = events.write_events(runs, tmp_path / "tb")
    assert [folder.name for folder in paths] == ["one-1", "one-2"]
    assert [path.name for path in paths[0].iterdir()] == [events.FILE]
    read = accumulator.EventAccumulator(str(paths[0])).Reload()
    assert [(event.step, event.value) for event in read.Scalars("global/global_accuracy")] == [(1, 10), (2, 30)]
    first, second = (event.wall_time for event in read.Scalars("loss/loss"))
    assert second - first == pytest.approx(3.0)
    written = RunFolder(runs[0].folder).metrics.stat().st_mtime
    assert second == pytest.approx(written)
    assert b"    name: tiny_digits\n" in read.Tensors("recipe")[0].tensor_proto.string_val[0]


def test_command_prints_the_next_command(write_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(interrupts, "install", lambda sentence: None)
    folder, out = write_run("one", [10.0]), tmp_path / "tb"
    monkeypatch.setattr(events, "write_events", lambda runs, folder: [folder / "one"])
    assert main.main(["hetero_tf", "tensorboard", folder, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote 1 run into {out}\nnext: tensorboard --logdir {out}\n"


def test_missing_package_is_reported_with_the_install_command(write_run, tmp_path, monkeypatch):
    runs, _ = gather([write_run("one", [10.0])])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refusal(events.write_events, runs, tmp_path / "tb") == (
        "tensorboard needs tensorboard, which is not installed; pip install 'hetero_tf[tensorboard]'"
    )
    assert not (tmp_path / "tb").exists()


def test_conflicting_file_is_refused(write_run, tmp_path):
    pytest.importorskip("tensorboard")
    runs, _ = gather([write_run("one", [10.0])])
    (tmp_path / "tb").write_text("mine")
    assert refusal(events.write_events, runs, tmp_path / "tb") == (
        f"{tmp_path}/tb: expected a folder or nothing. Received: a file; move it away"
    )
