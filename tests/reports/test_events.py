"""Files of events: TensorBoard's own reader finds every number, and they are written over as a whole."""

import pytest
from refusals import refusal

from hetero_tf.reports import events
from hetero_tf.runs.history import gather

ROWS = {(1, "1_results/global_accuracy", 10.0), (2, "1_results/global_accuracy", 30.0), (2, "4_training/active_c", 1.0)}


def test_scalars_are_all_numbers_of_a_run(write_run):
    ((run,), _) = gather([write_run("one", [10.0, 30.0], more={"text": "x", "flag": True, "none": None}, seconds=2.0)])
    scalars = set(events.scalars(run))
    assert {*ROWS, (2, "6_time/measuring_seconds", 1.0)} <= scalars
    tags = {tag for _, tag, _ in scalars}
    assert {"5_costs/bytes", "4_training/loss", "5_costs/train_flops"} <= tags
    assert not {tag for tag in tags if tag.rpartition("/")[2] in ("round", "text", "flag", "none", "merging_seconds")}


def test_tensorboard_reads_numbers_recipe_and_hyperparameters(write_run, tmp_path):
    metadata = pytest.importorskip("tensorboard.plugins.hparams.metadata")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    more = {"local_accuracy": 5.0}
    folders = [write_run("x/one", [10.0, 30.0], more=more, seconds=2.0), write_run("y/one", [20.0, 5.0], "seed=1")]
    runs, _ = gather(folders)
    for _ in range(2):
        paths = events.write_events(runs, tmp_path / "tb")
    assert [folder.name for folder in paths] == ["one-1", "one-2"]
    assert [path.name for path in paths[0].iterdir()] == [events.FILE]
    first, second = (EventAccumulator(str(folder)).Reload() for folder in paths)
    accuracies = [
        (event.step, make_ndarray(event.tensor_proto)) for event in first.Tensors("1_results/global_accuracy")
    ]
    assert accuracies == [(1, 10), (2, 30)]
    assert b"    name: tiny_digits\n" in first.Tensors("recipe")[0].tensor_proto.string_val[0]
    content = second.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = metadata.parse_session_start_info_plugin_data(content)
    assert session.group_name == "one" and session.hparams["seed"].number_value == 1
    assert session.hparams["optimizer.name"].string_value == "sgd"
    assert not session.hparams["optimizer.nesterov"].bool_value


def test_command_prints_the_next_command_or_what_is_missing(write_run, tmp_path, command, monkeypatch):
    folder, out = write_run("one", [10.0]), tmp_path / "tb"
    with monkeypatch.context() as patched:
        patched.setattr(events, "write_events", lambda runs, folder: [folder / "one"])
        output = f"wrote 1 run into {out}\nnext: tensorboard --logdir {out}\n"
        assert command("tensorboard", folder, "--out", out) == (0, output, "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert refusal(events.write_events, gather([folder])[0], out) == (
        "tensorboard needs tensorboard, which is not installed; pip install 'hetero_tf[tensorboard]'"
    )
    assert not out.exists()


def test_conflicting_file_is_refused(write_run, tmp_path):
    pytest.importorskip("tensorboard")
    runs, _ = gather([write_run("one", [10.0])])
    (tmp_path / "tb").write_text("mine")
    assert refusal(events.write_events, runs, tmp_path / "tb") == (
        f"{tmp_path}/tb: expected a folder or nothing. Received: a file; move it away"
    )
