"""The output of `list` for run folders, and the way from a run folder back to a state."""

import json
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import programs
import pytest
import runs
from refusals import refusal

import hetero_tf
from hetero_tf.base.console import Console
from hetero_tf.cli import flags
from hetero_tf.cli.commands import listing
from hetero_tf.cli.commands.listing import _format_overview
from hetero_tf.runs import checkpoints, overview
from hetero_tf.runs.run_folder import RunFolder

RECIPE = programs.RECIPE.replace("sbn", "none")
train_stub = runs.train_stub


@pytest.fixture
def folder(train_stub, tmp_path):
    """A run that was stopped after two of four rounds."""
    with pytest.raises(runs.Stopped):
        train_stub(tmp_path / "runs" / "one", RECIPE, console=runs.StoppingConsole(2))
    return tmp_path / "runs" / "one"


def test_a_run_is_stopped_running_finished_or_damaged(train_stub, folder):
    stopped = overview.overview(folder)
    last = runs.rows(folder)[1]["global_accuracy"]
    assert (stopped.state, stopped.round, stopped.rounds, stopped.recipe) == ("stopped", 2, 4, "small")
    assert (stopped.metric, stopped.last, stopped.changes) == ("global_accuracy", last, None)
    with RunFolder(folder).lock():
        assert RunFolder(folder).holder is not None and overview.overview(folder).state == "running"
    assert RunFolder(folder).holder is None
    train_stub(folder, RECIPE)
    assert (overview.overview(folder).state, overview.overview(folder).round) == ("finished", 4)
    for path in folder.glob("checkpoints/round-*"):
        path.write_text("{}")
    damaged = overview.overview(folder)
    assert damaged.state == "damaged" and damaged.problem.startswith(f"{folder / 'checkpoints'}: all 2 checkpoints")


def test_differences_from_the_shipped_recipe_are_reported(folder):
    text = hetero_tf.load_recipe("tiny/digits", ["seed=4", "rounds=9", "levels.mix=a1-b3"]).source
    (folder.parent / "two").mkdir()
    (folder.parent / "two" / "recipe.yaml").write_text(text)
    actual = overview.overview(folder.parent / "two")
    assert (actual.state, actual.round, actual.rounds, actual.metric) == ("stopped", 0, 9, "")
    assert actual.changes == ("levels.mix: a-b-c -> a1-b3", "seed: 0 -> 4")


@pytest.mark.long
def test_list_shows_run_folders_and_subfolders(folder):
    (folder.parent / "other").mkdir()
    assert overview.run_folders([folder.parent, folder]) == [folder]
    run = programs.shared().run("list", folder.parent, "--json")
    assert run.code == 0, run.err
    (listed,) = json.loads(run.out)["runs"]
    assert (listed["path"], listed["state"], listed["round"]) == (str(folder), "stopped", 2)
    assert "  stopped, round 2 of 4  global_accuracy best " in run.err and "not a shipped one" in run.err
    # Runs of a sweep are listed with the folder of all runs.
    (folder.parent / "s" / "x").mkdir(parents=True)
    (folder.parent / "s" / "x" / "recipe.yaml").touch()
    assert overview.run_folders([folder.parent]) == [folder]
    (folder.parent / "s" / "sweep.yaml").touch()
    assert overview.run_folders([folder.parent]) == [folder, folder.parent / "s" / "x"]


def test_run_with_plugins_is_read_without_them(folder):
    facts = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**facts, "plugins": ["own.windows"]}))
    path = folder / "recipe.yaml"
    path.write_text(path.read_text().replace("submodel: {name: prefix}", "submodel: {name: windows, step: 2}"))
    with mock.patch.object(checkpoints, "load_newest", lambda *_, **__: None):
        actual = overview.overview(folder)
    assert (actual.state, actual.recipe, actual.rounds, actual.problem) == ("stopped", "small", 4, "")
    assert actual.plugins == ("own.windows",) and actual.changes is None
    assert _format_overview(actual) == "stopped, round 0 of 4  recipe small, needs --plugin own.windows"


def test_run_of_a_sweep_is_not_described_as_an_edit_of_a_shipped_recipe(tmp_path):
    text = hetero_tf.load_recipe("mnist", ["name=heterofl"]).source
    for parent in ("sweep", "runs"):
        (tmp_path / parent / "heterofl").mkdir(parents=True)
        (tmp_path / parent / "heterofl" / "recipe.yaml").write_text(text)
    (tmp_path / "sweep" / "sweep.yaml").touch()
    assert overview.overview(tmp_path / "runs" / "heterofl").changes
    actual = overview.overview(tmp_path / "sweep" / "heterofl")
    assert (actual.sweep, actual.changes) == ("sweep", None)
    assert _format_overview(actual) == "stopped, round 0 of 200"


def test_the_layers_that_a_function_replaces_are_not_listed():
    changes = ("seed: 0 -> 1", "model.layers[0]: 'ReLU' -> absent", "model.function.name: absent -> 'net:build'")
    entry = overview.Overview("runs/x", "stopped", 1, 2, "digits", changes=changes)
    assert _format_overview(entry).endswith(
        "recipe digits with model.function.name: absent -> 'net:build'; seed: 0 -> 1"
    )


def test_runs_of_a_sweep_share_a_heading_instead_of_repeating_it(tmp_path, monkeypatch, capsys):
    text = hetero_tf.load_recipe("tiny/digits").source
    for path in ("alone", "grid/digits-seed=0", "grid/digits-seed=1"):
        (tmp_path / "runs" / path).mkdir(parents=True)
        (tmp_path / "runs" / path / "recipe.yaml").write_text(text)
    (tmp_path / "runs" / "grid" / "sweep.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Console, "width", 80)
    listing.list_runs(flags.parse(["hetero_tf", "list", "runs"])[1], Console())
    assert capsys.readouterr().out == (
        "runs:\n  runs/alone  stopped, round 0 of 2  recipe tiny_digits\n"
        "sweep runs/grid:\n  digits-seed=0  stopped, round 0 of 2\n  digits-seed=1  stopped, round 0 of 2\n"
    )


def test_without_a_folder_the_recipes_are_listed(tmp_path):
    run = programs.shared().run("list", cwd=tmp_path)
    assert run.code == 0 and run.out.endswith("no runs in runs\n")
    assert re.search("^  digits +Handwritten digits included in the package", run.out, re.MULTILINE)
    assert "\nsweeps:\n" in run.out and re.search(
        r"^  heterofl_table7 +HeteroFL, Table 7: MNIST, IID", run.out, re.MULTILINE
    )


def test_a_terminal_breaks_the_list_between_words(monkeypatch, capsys):
    monkeypatch.setattr(Console, "width", 80)
    listing.list_runs(flags.parse(["hetero_tf", "list"])[1], Console())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and not any(line[:1].isalpha() and ":" not in line for line in lines[:-1])
    start = next(index for index, line in enumerate(lines) if line.startswith("  methods/fedpaq "))
    about = " ".join(f"{lines[start].removeprefix('  methods/fedpaq')} {lines[start + 1]}".split())
    assert about == "FedPAQ: FedAvg whose clients send their updates with a few bits a value."


def test_listing_needs_no_tensorflow(folder):
    code = (
        "import sys; from hetero_tf.cli.main import main; "
        f"main(['x', 'list', {str(folder)!r}]); print({{'tensorflow', 'keras'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=programs.environment())
    assert done.stdout.splitlines()[-1] == "set()", done.stderr


def test_a_run_folder_explains_itself(folder):
    text = (folder / "README.txt").read_text()
    for name in ("recipe.yaml", "metrics.jsonl", "checkpoints", "partition.npz", "log.txt", "run.lock"):
        assert f"\n  {name} " in text
    assert "chosen by global_accuracy" in text and "\n  command\n" in text
    assert f"command export --run_dir {folder}" in text


def test_load_run_returns_a_state(folder):
    process, state = hetero_tf.load_run(folder, "last", threads=2)
    stored = checkpoints.load_newest(folder / "checkpoints")
    assert state.round == 2 and len(state.weights) > 2
    for path, value in state.weights.items():
        np.testing.assert_array_equal(value, stored.arrays[f"weights/{path}"])
    assert process.evaluate(state)[0]["global_loss"] == pytest.approx(runs.rows(folder)[1]["global_loss"], rel=1e-6)
    assert hetero_tf.load_run(str(folder), threads=2)[1].round == stored.info["best"]["round"]
    assert (
        refusal(hetero_tf.load_run, folder, "newest") == "`state` must be one of best, last. Received: state='newest'"
    )
    assert refusal(hetero_tf.load_run, folder.parent).endswith("name a folder that `train` wrote")
