"""Every tiny recipe trains two rounds and writes a complete run folder."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import runs
import tiny
from each import for_each
from refusals import raising

from hetero_tf import data, recipe
from hetero_tf.base import registry
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.run import experiment
from hetero_tf.run.data import split
from hetero_tf.run.simulated_rounds import SimulatedRounds
from hetero_tf.runs.run_folder import RunFolder

RECIPES = Path(__file__).parents[2] / "recipes"
TINY = sorted((RECIPES / "tiny").glob("*.yaml"))
# The numbers are those of users' runs.
OPTIMIZE_GRAPHS = True
METRICS = json.loads((Path(__file__).parents[1] / "golden" / "tiny_metrics.json").read_text())


# Trained eagerly in seconds; the others take longer, as do compiled rounds.
QUICK = ("cifar10_vit", "digits", "femnist", "mnist", "mnist_mlp", "mnist_mlp_lg")


def cases():
    """`(path, whether its rounds are compiled)` of every tiny recipe."""
    for path in TINY:
        name = path.stem
        if name in QUICK:
            yield pytest.param(path, False, id=name)
        yield pytest.param(path, True, id=f"{name}-compiled", marks=[] if name == "mnist_mlp" else pytest.mark.long)


def untraced(monkeypatch):
    """Run functions eagerly, without tracing the round first."""
    monkeypatch.setattr(SimulatedRounds, "prepare", lambda self: None)
    return tiny.eagerly()


def approximately(metrics):
    """Values that equal metrics up to float64 rounding."""
    return {name: value if name == "levels" else pytest.approx(value, rel=1e-6) for name, value in metrics.items()}


def test_every_recipe_has_a_tiny_one():
    assert [path.name for path in TINY] == sorted(path.name for path in RECIPES.glob("*.yaml"))


@pytest.mark.parametrize(("path", "compiled"), list(cases()))
def test_tiny_recipe_runs(path, compiled, tmp_path, monkeypatch):
    # In float64 every processor gives the recorded numbers; in float32 norms over few examples amplify the last bits.
    loaded = recipe.load(path, ["precision=float64"])
    output, settings = io.StringIO(), experiment.Settings(tmp_path, None, 2, False, "")
    with contextlib.nullcontext() if compiled else untraced(monkeypatch):
        *_, summary = experiment.train(loaded, settings, Console(output))
    metrics_rows = runs.rows(tmp_path)
    assert [row["round"] for row in metrics_rows] == [1, 2] and summary["rounds"] == 2
    for row, expected in zip(metrics_rows, METRICS[path.stem], strict=True):
        assert sum(row["levels"].values()) == loaded.round.clients
        assert {name: row[name] for name in expected} == approximately(expected)
    assert metrics_rows[0]["learning_rate"] == pytest.approx(10 * metrics_rows[1]["learning_rate"])
    assert summary["stand_in_for"] is None and "NOT THE REAL DATA" not in output.getvalue()
    run = RunFolder(tmp_path)
    assert recipe.loads(run.read_recipe()).source == loaded.source
    state = runs.arrays(run.checkpoints)
    assert state and all(np.isfinite(np.frombuffer(value, np.float64)).all() for value in state.values())


@pytest.mark.long
@pytest.mark.parametrize("name", ["mnist_mlp_lg", "cifar10_cnn_lg"])
def test_second_command_of_a_header_starts_from_the_first_run(name, tmp_path, monkeypatch):
    """First FedAvg, then LG-FedAvg from its run folder, with the commands of the header."""
    monkeypatch.chdir(tmp_path)
    text, outputs = (RECIPES / "tiny" / f"{name}.yaml").read_text(), []
    for command in re.findall(r"^# (?:First|Run): bin/hetero_tf (.*)$", text, re.MULTILINE):
        _, path, *overrides = shlex.split(command)
        loaded, output = recipe.load(path, [value for value in overrides if value != "--set"]), io.StringIO()
        settings = experiment.Settings(Path("runs") / loaded.name, None, 2, False, "")
        with untraced(monkeypatch):
            experiment.train(loaded, settings, Console(output))
        outputs.append(output.getvalue())
    first = f"tiny_{name.removesuffix('_lg')}"
    assert "initial weights" not in outputs[0] and f"initial weights: runs/{first}/checkpoints, round " in outputs[1]
    state = runs.arrays(tmp_path / "runs" / f"tiny_{name}" / "checkpoints")
    personal_paths = {path.removeprefix("clients/personal/") for path in state if path.startswith("clients/personal/")}
    assert {path.split("_")[0] for path in personal_paths} == set(loaded.round.personal)
    first_state = runs.best_arrays(tmp_path / "runs" / first)
    for path in personal_paths:
        # Units that stay with the clients are never merged: their global values are those of the start.
        assert state[f"weights/{path}"] == first_state[f"weights/{path}"]


def stand_in(loaded, monkeypatch):
    """The fallback of a recipe whose data are not available."""

    monkeypatch.setattr(
        registry.find("data", loaded.data.loader.name),
        "load",
        raising(NotAvailable("not found in any folder; put it there")),
    )
    return data.load(loaded.data.loader, loaded.data.fallback)


@for_each(shipped())
def test_stand_in_of_every_recipe_can_be_split(name, monkeypatch):
    loaded = recipe.load(name)
    if loaded.data.fallback:
        partition = split(loaded, stand_in(loaded, monkeypatch))
        assert len(partition.train) == loaded.partition.options["clients"] and (partition.train.sizes > 0).all()


def test_failed_split_of_a_stand_in_names_the_original_data(monkeypatch):
    loaded = recipe.load("methods/heterofl", ["partition.least=10"])
    with pytest.raises(
        InputError,
        match="^recipes/methods/heterofl.yaml:.*none of 1000 .* least=10. The data are a fallback: "
        ".*digits.*, standing in for cifar10: not found in any folder",
    ):
        split(loaded, stand_in(loaded, monkeypatch))
