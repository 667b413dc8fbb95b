"""Overview of runs from their folders: reads no arrays, writes nothing, needs no TensorFlow."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetero_tf import recipe
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.runs import environment, facts, metrics_file
from hetero_tf.runs.early_stopping import is_stopped_early, selection_metric
from hetero_tf.runs.history import checked_keys, mix_text
from hetero_tf.runs.run_folder import RECIPE, SWEEP, RunFolder

RUNNING, FINISHED, STOPPED, DAMAGED = "running", "finished", "stopped", "damaged"


@dataclass(frozen=True)
class Overview:
    """State and progress of one run.

    Attributes:
        state: RUNNING, FINISHED, STOPPED or DAMAGED.
        round: Round of the newest checkpoint; 0 before the first.
        rounds: Number of rounds of the recipe; 0 if unreadable. A run that early stopping ended is FINISHED before it.
        metric: Selection metric of the best round; "" before the first evaluation.
        best, last: The metric in the best and in the last evaluation.
        changes: Differences from the shipped recipe of that name, as `key: shipped -> run`. None without such a recipe,
            in a sweep, whose items have names of their own, and without the plug-ins of the run.
        sweep: Name of the sweep that contains the run; "" outside of sweeps.
        plugins: Plug-in modules of the run that are not registered.
    """

    path: Path
    state: str
    round: int = 0
    rounds: int = 0
    recipe: str = ""
    metric: str = ""
    best: float | None = None
    last: float | None = None
    changes: tuple[str, ...] | None = None
    problem: str = ""
    sweep: str = ""
    plugins: tuple[str, ...] = ()


def overview(path: Path | str) -> Overview:
    """Read one run folder. Problems are reported in the result, not raised."""
    run = RunFolder(Path(path))
    try:
        return _read_run(run)
    except UserError as refusal:
        return Overview(run.path, DAMAGED, problem=str(refusal))


def run_folders(paths: Iterable[Path | str]) -> list[Path]:
    """List run folders: the given folders, their subfolders, and those of sweeps there. Each once, sorted by name."""
    runs: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise InputError(f"{path}: is not a folder; name run folders, or a folder of runs such as runs")
        runs += [path] if is_run(path) else _find_below(path)
    return list(dict.fromkeys(runs))


def _find_below(folder):
    inside = [folder / name for name in sorted(os.listdir(folder))]
    return [
        run
        for child in inside
        for run in ([child] if is_run(child) else _find_below(child) if (child / SWEEP).is_file() else [])
    ]


def is_run(path: Path) -> bool:
    """Return True if a folder holds a run or the remains of one."""
    return (path / RECIPE).is_file() or (path / "checkpoints").is_dir()


def _read_run(run):
    info = facts.newest(run, with_arrays=False) or {}
    missing = environment.missing_plugins(run.environment)
    text = info["recipe"] if info else run.read_recipe()
    resolved, keys = _read_keys(text, run, missing)
    done, last, best = info.get("round", 0), info.get("last") or {}, info.get("best") or {}
    metric = selection_metric(keys, [last]) if last or keys.get("evaluate.best") else ""
    # The recipe that was last requested: `recipe.yaml` has its number of rounds before the next checkpoint does.
    try:
        _, requested = _read_keys(run.read_recipe(), run, missing)
    except InputError:
        requested = keys
    state = RUNNING if run.holder else FINISHED if is_finished(run, done, requested) else STOPPED
    return Overview(
        run.path,
        state,
        done,
        requested["rounds"],
        keys["name"],
        metric,
        best.get(metric),
        last.get(metric),
        None if run.sweep or resolved is None else _changes(resolved),
        sweep=run.sweep,
        plugins=missing,
    )


def _read_keys(text, run, missing):
    """Return a recipe and its keys; None for the recipe if it needs plug-in modules that are `missing`."""
    try:
        resolved = recipe.loads(text, str(run.recipe))
    except InputError:
        if not missing:
            raise
        return None, checked_keys(text, run.recipe)[0]
    return resolved, recipe.keys_of(resolved)


def is_finished(run: RunFolder, done: int, requested: Mapping[str, Any]) -> bool:
    """Return True if a run needs no further round: all are done, or early stopping ended it.

    Args:
        run: The folder of the run.
        done: Round of its newest checkpoint.
        requested: `{dotted key: value}` of the recipe to finish, with its number of rounds and its early stopping.
    """
    if done >= requested["rounds"] or requested.get("early_stopping.patience") is None:
        return done >= requested["rounds"]
    rows = [row for row in metrics_file.rows(run.metrics) if row["round"] <= done]
    return is_stopped_early(requested, rows)


def _changes(resolved):
    """Return the differences from the shipped recipe of the same name; None without such a recipe."""
    named = [key for key in shipped() if resolved.name in (key.replace("/", "_"), key.rpartition("/")[2])]
    original = next((each for each in map(recipe.load, named) if each.name == resolved.name), None)
    if original is None:
        return None
    lines = recipe.changed_keys(original.source, resolved.source)
    others = [line for line in lines if not line.startswith("levels.mix.")]
    if len(others) < len(lines):
        others.insert(0, f"levels.mix: {mix_text(original.levels.mix)} -> {mix_text(resolved.levels.mix)}")
    return tuple(others)
