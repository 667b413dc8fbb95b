"""A run in its folder: begin, extend, refuse, resume, announce stand-ins."""

import json
import os
import re
import shutil

import numpy as np
import programs
import pytest
import runs
import stub_rounds
from refusals import raising, refusal

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, Locked
from hetero_tf.data import tfds, words
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.run import resume
from hetero_tf.runs import checkpoints, facts, trackers
from hetero_tf.runs.run_folder import RunFolder

RECIPE = programs.RECIPE
train_stub = runs.train_stub


def test_a_run_leaves_its_folder_and_a_summary(train, tmp_path):
    summary, output = train(tmp_path / "run", RECIPE)
    files = (
        "README.txt checkpoints costs.json data.json environment.json log.txt metrics.jsonl partition.npz recipe.yaml"
    )
    files += " run.lock timings.jsonl"
    assert " ".join(sorted(path.name for path in (tmp_path / "run").iterdir())) == files
    rows = runs.rows(tmp_path / "run")
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert summary["rounds"] == 4 and summary["data"] == "synthetic images (seed 0)" and summary["stand_in_for"] is None
    assert {name: rows[3][name] for name in summary["last"]} == summary["last"]
    assert output.startswith(
        "data: synthetic images (seed 0)\npictures: 6 x 6 pixels, grey, uint8\nclasses: 10 with 12 examples each\nclients: 6 with 20 examples each; 2 train in each round\n"
        "note: local_* scores each client on its own classes only; global_* uses all classes\n"
        "engine: CPU, float32; 2 threads, each training one client at a time\nready in "
    )
    assert json.loads(json.dumps(summary)) == summary


def test_trackers_follow_a_run_to_its_end(train_stub, tmp_path, monkeypatch):
    calls = []

    class Tracker:
        id, address = "1", "here"

        def __init__(self, description, run_id):
            calls.append((description.name, run_id))

        def log(self, rows):
            calls.extend(round for round, _ in rows)

        def finish(self, succeeded):
            calls.append(succeeded)

    monkeypatch.setitem(trackers.TRACKERS, "mlflow", Tracker)
    _, output = train_stub(tmp_path / "run", RECIPE, "rounds=1", trackers=("mlflow",))
    assert calls == [("run", None), 1, True] and "logging to mlflow: here\n" in output


def test_another_recipe_is_refused_with_both_values(train_stub, tmp_path):
    train_stub(tmp_path, RECIPE)
    before = programs.contents(tmp_path)
    other = ("optimizer.learning_rate=0.1", "round.clients=3", "rounds=9")
    assert refusal(train_stub, tmp_path, RECIPE, *other) == (
        f"{tmp_path}: holds a run of another recipe (round.clients: 2 -> 3; optimizer.learning_rate: 0.05 -> 0.1); "
        "choose another folder by --run_dir, or use the recipe of that run"
    )
    assert programs.contents(tmp_path) == before


def test_more_rounds_extend_a_run_and_fewer_report_that_it_is_done(train_stub, tmp_path):
    train_stub(tmp_path / "long", RECIPE, "rounds=6")
    train_stub(tmp_path / "short", RECIPE)
    summary, output = train_stub(tmp_path / "short", RECIPE, "rounds=6")
    assert summary["rounds"] == 6 and f"resumed {tmp_path / 'short'} after round 4\n" in output
    assert programs.contents(tmp_path / "short") == programs.contents(tmp_path / "long")
    summary, output = train_stub(tmp_path / "short", RECIPE, "rounds=2")
    assert summary["rounds"] == 6 and "all 6 rounds are done; use --set rounds=N to train more\n" in output
    assert programs.contents(tmp_path / "short") == programs.contents(tmp_path / "long")
    assert "\nrounds: 6\n" in (tmp_path / "short" / "recipe.yaml").read_text()


def test_the_first_call_is_timed_and_only_that(train_stub, tmp_path):
    summary, output = train_stub(tmp_path, RECIPE, "evaluate.every=3", "checkpoint.every=3", "rounds=3")
    parts = ", ".join(rf"{name} [\d.]+ s" for name in ("start", "data", "build", "trace", "first 3 rounds"))
    (line,) = re.findall(rf"^ready in [\d.]+ s: {parts}$", output, re.MULTILINE)
    assert line in [logged[9:] for logged in (tmp_path / "log.txt").read_text().splitlines()]
    assert list(summary["first_round_s"]) == ["start", "data", "build", "trace", "round", "total"]
    summary, output = train_stub(tmp_path, RECIPE, "evaluate.every=3", "checkpoint.every=3", "rounds=3")
    assert summary["first_round_s"] is None and "\nready" not in output
    assert not any("first" in row or "start" in row for row in runs.rows(tmp_path))


def test_another_engine_or_number_of_threads_is_another_environment(train_stub, tmp_path):
    # Of batches of one shape the engine would know that.
    ragged = RECIPE.replace("batch_size: 10", "batch_size: 8")
    train_stub(tmp_path, ragged, "rounds=1")
    facts = json.loads((tmp_path / "environment.json").read_text())
    expected = {"clients_at_once": {"a": 1, "b": 1}, "compiled": False, "device": "cpu", "precision": "float32"}
    assert facts["settings"].items() >= expected.items()
    assert facts["threads"] == {"inter_op": 2, "intra_op": 1}
    with pytest.raises(
        InputError,
        match=r"started in another environment \(settings.clients_at_once was {'a': 1, 'b': 1}, "
        r"is {'a': 2, 'b': 2}\), so its results .* --allow_other_machine to continue anyway$",
    ):
        train_stub(tmp_path, ragged, "rounds=2", "engine=stacked")
    with pytest.raises(InputError, match=r"in another environment \(threads.inter_op was 2, is 1\)"):
        train_stub(tmp_path, ragged, "rounds=2", threads=1)
    with pytest.raises(InputError, match=r"holds a run of another recipe \(precision: 'float32' -> 'float64'\)"):
        train_stub(tmp_path, ragged, "rounds=2", "precision=float64", allow=True)
    # The name of the engine does not matter, but what it comes to.
    _, output = train_stub(tmp_path, ragged, "rounds=2", "engine=sequential")
    assert "after round 1\n" in output and "note: settings" not in output
    _, output = train_stub(tmp_path, ragged, "rounds=3", "engine=stacked", allow=True)
    assert "note: settings.clients_at_once was {'a': 1, 'b': 1}, is {'a': 2, 'b': 2}\n" in output
    assert "each training 2 clients together" in output
    assert train_stub(tmp_path, ragged, "rounds=4", "engine=stacked")[0]["rounds"] == 4


def test_stand_in_data_are_announced_loudly(train_stub, tmp_path, monkeypatch):
    monkeypatch.setattr(
        tfds, "load", raising(NotAvailable("mnist is not there and could not be fetched; put it there"))
    )
    summary, output = train_stub(
        tmp_path / "run", RECIPE, "data={name: tfds, dataset: mnist, fallback: digits}", "rounds=1"
    )
    assert summary["stand_in_for"] == "mnist"
    assert summary["data"].endswith("standing in for mnist: mnist is not there and could not be fetched")
    loud = re.findall(r"^\*\*\* NOT THE REAL DATA: .* \*\*\*$", output, re.MULTILINE)
    assert len(loud) == 2 and output.startswith(loud[0]) and "trained on" in loud[1]
    assert loud[1] in (tmp_path / "run" / "log.txt").read_text()


def test_run_cannot_resume_with_other_data(train_stub, tmp_path):
    """A stand-in at first and the real data later: equal recipe, other examples."""
    path = tmp_path / "set.npz"
    text = re.sub(r"data: .*", f"data: {{name: npz, path: '{path}'}}", RECIPE)
    rng = np.random.default_rng(0)
    for number in range(2):
        x, y = rng.integers(0, 256, (120, 6, 6, 1), dtype=np.uint8), np.arange(120) % 4
        np.savez(path, x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
        if number == 0:
            train_stub(tmp_path / "run", text, "rounds=1")
    with pytest.raises(InputError, match="run: was trained on other data than .*; use the same data, for example"):
        train_stub(tmp_path / "run", text, "rounds=2", allow=True)


def test_a_stored_recipe_that_was_edited_is_not_measured_or_exported(train_stub, tmp_path):
    train_stub(tmp_path, RECIPE)
    run = RunFolder(tmp_path)
    info = checkpoints.load_newest(run.checkpoints).info
    resume.check_stored_recipe(run, info)
    run.recipe.write_text(run.read_recipe().replace("seed: 3", "seed: 4").replace("rounds: 4", "rounds: 5"))
    with pytest.raises(InputError, match=r"recipe.yaml: was changed after the training \(seed: 3 -> 4\); put it"):
        resume.check_stored_recipe(run, info)


def test_new_folder_is_removed_if_the_run_does_not_start(tmp_path):
    run = RunFolder(tmp_path / "deep" / "er" / "run")
    with pytest.raises(InputError, match="refused"), resume.locked(run):
        (run.path / "environment.json").write_text("{}")
        raise InputError("refused")
    assert list(tmp_path.iterdir()) == []
    run.path.mkdir(parents=True)
    with pytest.raises(InputError, match="refused"), resume.locked(run):
        raise InputError("refused")
    assert run.path.is_dir(), "a folder that was there stays"


def test_a_folder_in_use_is_refused(train_stub, tmp_path):
    with RunFolder(tmp_path / "run").lock(), pytest.raises(Locked, match="process [0-9]+ works on this run folder"):
        train_stub(tmp_path / "run", RECIPE)


def test_lost_best_state_is_reported_and_replaced(train_stub, tmp_path, monkeypatch):
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: 10.0 - round)
    train_stub(tmp_path, RECIPE)
    best = checkpoints.path_of(tmp_path / "checkpoints", 1)
    assert facts.newest(RunFolder(tmp_path))["best"]["round"] == 1
    best.write_bytes(b"")
    summary, output = train_stub(tmp_path, RECIPE)
    assert "note: the best state so far, of round 1, is lost" in output and f"{best}: is damaged" in output
    assert summary["best"] == {} and summary["rounds"] == 4
    summary, output = train_stub(tmp_path, RECIPE, "rounds=5")
    assert summary["best"]["round"] == 5 and checkpoints.numbers(tmp_path / "checkpoints") == [5, 4]


def test_checkpoint_of_another_version_is_refused(train_stub, tmp_path):
    train_stub(tmp_path / "run", RECIPE, "rounds=1")
    runs.resave(tmp_path / "run" / "checkpoints", environment=None)
    with pytest.raises(InputError, match="round 1 was not saved by this version of hetero_tf: environment is missing"):
        train_stub(tmp_path / "run", RECIPE, "rounds=2")


@pytest.mark.long
def test_a_run_with_dropouts_and_partial_work_resumes_bit_by_bit(train, tmp_path):
    more = (
        "rounds=6",
        "client.epochs=3",
        "levels.mix=a",
        "round.clients=4",
        "fleet={jitter: 0.5, devices: {any: {seconds_per_step: 0.1, dropout: 0.3, train_watts: 2}}}",
        "round.policy={name: deadline, seconds: 0.5, late: partial}",
    )
    train(tmp_path / "whole", RECIPE, *more)
    rows = runs.rows(tmp_path / "whole")
    assert sum(row["dropped"] for row in rows) > 0 and sum(row["partial"] for row in rows) > 0
    for stop in (1, 4):
        with pytest.raises(runs.Stopped):
            train(tmp_path / f"cut{stop}", RECIPE, *more, console=runs.StoppingConsole(stop))
        train(tmp_path / f"cut{stop}", RECIPE, *more)
        assert programs.contents(tmp_path / f"cut{stop}") == programs.contents(tmp_path / "whole")


def test_totals_of_a_resumed_run_add_up(train_stub, tmp_path):
    fleet = "fleet={devices: {any: {seconds_per_step: 0.1, train_watts: 2}}}"
    train_stub(tmp_path, RECIPE, "rounds=2", fleet)
    train_stub(tmp_path, RECIPE, "rounds=3", fleet)
    rows = runs.rows(tmp_path)
    assert rows[2]["device_seconds"] == sum(row["round_seconds"] for row in rows)
    assert rows[2]["bytes"] == sum(row["bytes_down"] + row["bytes_up"] for row in rows)
    assert rows[1]["energy"] == sum(row["round_energy"] for row in rows[:2]) > 0


def test_a_run_starts_from_the_best_state_of_another(train_stub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train_stub(tmp_path / "first", RECIPE)
    best = resume.open_best(RunFolder(tmp_path / "first"), runs.built(RECIPE)).state
    text = RECIPE.replace("model:\n", "model:\n  initial_weights: first\n")
    _, output = train_stub(tmp_path / "second", text, "rounds=1")
    assert f"initial weights: first/checkpoints, round {best.round}\n" in output
    actual = runs.built(text).initialize()
    assert actual.round == 0 and {path: np.asarray(value).tobytes() for path, value in actual.weights.items()} == {
        path: np.asarray(value).tobytes() for path, value in best.weights.items()
    }
    drawn = runs.built(RECIPE).initialize()
    assert any((np.asarray(value) != np.asarray(drawn.weights[path])).any() for path, value in actual.weights.items())
    # As with a file, nothing of it is needed to go on, and the recipe of the run folder is the whole recipe.
    shutil.rmtree(tmp_path / "first")
    summary, output = train_stub(tmp_path / "second", text, "rounds=2")
    assert summary["rounds"] == 2 and "initial weights" not in output
    message = refusal(train_stub, tmp_path / "third", text)
    assert "model.initial_weights: first: could not read: No such file or directory; name a .npz file, or" in message
    assert message.startswith("test:") and message.endswith("^") and not (tmp_path / "third").exists()


def test_lost_checkpoints_stop_a_run_before_anything_is_overwritten(train_stub, tmp_path):
    train_stub(tmp_path / "whole", RECIPE)
    for is_empty in (False, True):
        folder = tmp_path / str(is_empty)
        shutil.copytree(tmp_path / "whole", folder)
        shutil.rmtree(folder / "checkpoints")
        if is_empty:
            # A kill in the first round may leave an empty folder too, but not one in the fourth.
            (folder / "checkpoints").mkdir()
        before = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert refusal(train_stub, folder, RECIPE) == (
            f"{folder / 'checkpoints'}: has no checkpoint, but 4 rounds of this run are done; put the folder "
            "back, or start again: in another folder by --run_dir, or here after removing this one"
        )
        after = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert before == {name: data for name, data in after.items() if name in before}


def test_run_stopped_before_its_first_checkpoint_starts_again(train_stub, tmp_path, monkeypatch):
    monkeypatch.setattr(stub_rounds, "stub_metric", lambda name, round: np.nan)
    more = ("checkpoint.every=3",)
    with pytest.raises(runs.Stopped):
        train_stub(tmp_path / "cut", RECIPE, *more, console=runs.StoppingConsole(2))
    assert len(runs.rows(tmp_path / "cut")) == 2 and not list((tmp_path / "cut" / "checkpoints").iterdir())
    _, output = train_stub(tmp_path / "cut", RECIPE, *more)
    assert f"note: {tmp_path / 'cut'} was stopped before its first checkpoint; it starts again\n" in output
    train_stub(tmp_path / "whole", RECIPE, *more)
    assert programs.contents(tmp_path / "cut") == programs.contents(tmp_path / "whole")


class ChangingConsole(runs.StoppingConsole):
    """A console at which somebody else changes the metrics after round 2."""

    def __init__(self, change):
        super().__init__(99)
        self.change = change

    def progress(self, text, keep=True, details=""):
        super().progress(text, keep, details)
        if text.startswith("round 2/"):
            self.change()


@pytest.mark.parametrize("how", ["removed", "replaced", "shortened", "a pipe"])
def test_metrics_removed_during_a_run_are_restored(train_stub, tmp_path, how):
    path = tmp_path / "run" / "metrics.jsonl"
    changes = {
        "removed": path.unlink,
        "replaced": lambda: files.write_atomic(path, b"{}\n"),
        "shortened": lambda: os.truncate(path, 50),
        "a pipe": lambda: (path.unlink(), os.mkfifo(path)),
    }
    console = ChangingConsole(changes[how])
    if how == "a pipe":
        message = refusal(train_stub, tmp_path / "run", RECIPE, console=console)
        assert message.startswith(f"{path}: expected a file") and "Received: a pipe, device or socket" in message
        return
    train_stub(tmp_path / "run", RECIPE, console=console)
    note = f"note: {path} was removed or changed during the run; its rows were restored\n"
    assert console.stream.getvalue().count(note) == 1
    train_stub(tmp_path / "whole", RECIPE)
    assert programs.contents(tmp_path / "run") == programs.contents(tmp_path / "whole")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_used(train_stub, tmp_path, bad):
    """Nobody trains such a state, but somebody may seal it."""
    train_stub(tmp_path, RECIPE, "rounds=1")
    saved = checkpoints.load_newest(tmp_path / "checkpoints")
    name = min(name for name in saved.arrays if name.startswith("weights/"))
    spoiled = np.full_like(saved.arrays[name], bad)
    checkpoints.save(tmp_path / "checkpoints", 1, {**saved.arrays, name: spoiled}, saved.info, keep=1)
    assert refusal(train_stub, tmp_path, RECIPE, "rounds=2") == (
        f"{tmp_path / 'checkpoints'}: round 1 holds NaN or infinite values in {name!r}; restore the folder from a copy, "
        "or train again in another folder"
    )


def test_a_run_does_not_continue_with_batches_of_other_shapes_or_with_onednn(train_stub, tmp_path, monkeypatch):
    """Means over a shape that is known may be rounded otherwise, so no run continues without a flag."""
    train_stub(tmp_path / "one", RECIPE, "rounds=1", "client.batch_size=10")
    train_stub(tmp_path / "two", RECIPE, "rounds=1", "client.batch_size=8")
    settings = [json.loads((tmp_path / name / "environment.json").read_text())["settings"] for name in ("one", "two")]
    assert settings[0]["batch_shape"] == [10, 1] and "batch_shape" not in settings[1]
    with pytest.raises(InputError, match=r"settings.batch_shape was \[10, 1\], is None"):
        train_stub(tmp_path / "one", RECIPE, "rounds=2", "client.batch_size=10", "engine=sequential")
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    train_stub(tmp_path / "three", RECIPE, "rounds=1")
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    with pytest.raises(InputError, match=r"settings.onednn was False, is None"):
        train_stub(tmp_path / "three", RECIPE, "rounds=2")


@pytest.mark.long
def test_a_resumed_run_does_not_learn_its_subwords_again(train_stub, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("low lower lowest\nnew newer newest\n" * 20)
    options = ("tokenizer: subwords", "vocabulary: 24", "rows: 6", "test_rows: 2")
    subwords = f"data={{name: text, train: {tmp_path}/a.txt, {', '.join(options)}}}"
    small = ("levels.mix=e", "model.settings.blocks=1")
    overrides = (subwords, *small, "partition.clients=6", "round.clients=2", "client.batch_size=5")
    train_stub(tmp_path / "run", "base: tiny/wikitext2", *overrides)
    with monkeypatch.context() as patch:
        patch.setattr(words, "learn_pieces", lambda *_: pytest.fail("learned again"))
        summary, output = train_stub(tmp_path / "run", "base: tiny/wikitext2", *overrides, "rounds=3")
    assert summary["rounds"] == 3 and "resumed" in output
    # Without the description, the same subwords are learned again.
    (tmp_path / "run" / "data.json").unlink()
    assert train_stub(tmp_path / "run", "base: tiny/wikitext2", *overrides, "rounds=4")[0]["rounds"] == 4
