"""Overview of runs from their folders: reads no arrays, writes nothing, needs no TensorFlow."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf import recipe
from hetero_tf.base import metrics, registry
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.escaping import quote_shell
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs import facts
from hetero_tf.runs.early_stopping import is_stopped_early
from hetero_tf.store import checkpoints, environment, metrics_file
from hetero_tf.store.run_folder import RECIPE, SWEEP, RunFolder

RUNNING, FINISHED, STOPPED, DAMAGED, UNKNOWN = "running", "finished", "stopped", "damaged", "unknown"


@dataclass(frozen=True)
class Overview:
    """State and progress of one run.

    Attributes:
        path: The run folder.
        state: RUNNING, FINISHED, STOPPED, DAMAGED, or UNKNOWN if its plug-in modules are not registered.
        round: Round of the newest checkpoint; 0 before the first.
        rounds: Number of rounds of the recipe; 0 if unreadable. A run that early stopping ended is FINISHED before it.
        recipe: Name of the recipe.
        metric: Selection metric of the best round; "" before the first evaluation.
        best, last: The metric in the best and in the last evaluation.
        changes: Differences from the shipped recipe of that name, as `key: shipped -> run`; None without such a recipe.
        problem: The reason why a run is damaged or unknown.
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


def overview(path: Path | str) -> Overview:
    """Read one run folder. Problems are reported in the result, not raised."""
    run = RunFolder(Path(path))
    try:
        return _read_run(run)
    except UserError as refusal:
        missing = [name for name in environment.plugins(run.environment) if name not in registry.plugin_modules()]
        if missing:
            needs = " ".join(f"--plugin {quote_shell(name)}" for name in missing)
            return Overview(run.path, UNKNOWN, problem=f"needs {needs} to be read")
        return Overview(run.path, DAMAGED, problem=str(refusal))


def run_folders(paths: Iterable[Path | str]) -> list[Path]:
    """List run folders: the given folders, their subfolders, and those of sweeps there. Each once, sorted by name.

    Raises:
        InputError: A path is not a folder.
    """
    runs: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise InputError(f"{path}: is not a folder; name run folders, or a folder of runs such as runs")
        runs += [path] if is_run(path) else _find_below(path)
    return list(dict.fromkeys(runs))


def _find_below(folder):
    """The run folders in a folder, and those of sweeps in it."""
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
    checkpoint = checkpoints.newest_without_arrays(run.checkpoints)
    info = {} if checkpoint is None else facts.from_checkpoint(checkpoint, run.checkpoints)
    text = info["recipe"] if info else facts.read_recipe(run)
    resolved = recipe.loads(text, str(run.recipe))
    done, last, best = info.get("round", 0), info.get("last") or {}, info.get("best") or {}
    default = metrics.default_selection_metric(resolved.metrics[0], metrics.is_validated(last)) if last else ""
    metric = resolved.evaluate.best or default
    requested = _requested_recipe(run, resolved)
    if run.holder is not None:
        state = RUNNING
    else:
        state = FINISHED if is_finished(run, done, requested) else STOPPED
    return Overview(
        run.path,
        state,
        done,
        requested.rounds,
        resolved.name,
        metric,
        best.get(metric),
        last.get(metric),
        _changes(resolved),
    )


def is_finished(run: RunFolder, done: int, requested: Recipe) -> bool:
    """Return True if a run needs no further round: all are done, or early stopping ended it.

    Args:
        run: The folder of the run.
        done: Round of its newest checkpoint.
        requested: The recipe to finish, with its number of rounds and its early stopping.
    """
    if done >= requested.rounds or requested.early_stopping.patience is None:
        return done >= requested.rounds
    rows = [metrics.migrate_names(row) for row in metrics_file.rows(run.metrics) if row["round"] <= done]
    return is_stopped_early(recipe.keys_of(requested), rows)


def _requested_recipe(run, resolved):
    """The recipe that was last requested: `recipe.yaml` has its number of rounds before the next checkpoint does."""
    try:
        return recipe.loads(facts.read_recipe(run), str(run.recipe))
    except InputError:
        return resolved


def _changes(resolved):
    """Differences from the shipped recipe of the same name; None without such a recipe."""
    named = [key for key in shipped() if resolved.name in (key.replace("/", "_"), key.rpartition("/")[2])]
    for key in named:
        original = recipe.load(key)
        if original.name == resolved.name:
            return tuple(_changed(original, resolved))
    return None


def _changed(original, resolved):
    """The keys that differ, with the mix of levels in its short form."""
    lines = recipe.changed_keys(original.source, resolved.source)
    others = [line for line in lines if not line.startswith("levels.mix.")]
    if len(others) < len(lines):
        others.insert(0, f"levels.mix: {_mix(original.levels)} -> {_mix(resolved.levels)}")
    return others


def _mix(levels):
    equal = len(set(levels.mix.values())) == 1
    return "-".join(name if equal else f"{name}{share:g}" for name, share in levels.mix.items())
