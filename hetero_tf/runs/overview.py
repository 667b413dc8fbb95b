"""How far runs are, read from their folders in a moment: no array is read, nothing is written, no TensorFlow."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hetero_tf import recipe
from hetero_tf.base import metrics, registry
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.recipe.recipe_files import shipped
from hetero_tf.runs import facts
from hetero_tf.store import checkpoints, environment
from hetero_tf.store.run_folder import RECIPE, SWEEP, RunFolder

RUNNING, FINISHED, STOPPED, DAMAGED, UNKNOWN = "running", "finished", "stopped", "damaged", "unknown"


@dataclass(frozen=True)
class Overview:
    """One run.

    Attributes:
        path: Its folder.
        state: RUNNING, FINISHED, STOPPED, DAMAGED, or UNKNOWN where its own modules are not registered.
        round: The newest sealed round; 0 before the first.
        rounds: How many the recipe has; 0 where that cannot be read.
        recipe: Its name.
        metric: The metric that chooses the best round; "" before the first evaluation.
        best, last: What the metric was in the best and in the last evaluation.
        changes: What differs from the shipped recipe of that name, as `key: there -> here`; None: there is no such.
        problem: Why one is damaged or unknown.
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
    """Reads one run folder. Whatever is wrong with it is told by the result."""
    run = RunFolder(Path(path))
    try:
        return _of(run)
    except UserError as refusal:
        missing = [name for name in environment.plugins(run.environment) if name not in registry.plugged()]
        if missing:
            needs = " ".join(f"--plugin {name}" for name in missing)
            return Overview(run.path, UNKNOWN, problem=f"was made with modules of one's own; add {needs}")
        return Overview(run.path, DAMAGED, problem=str(refusal))


def run_folders(places: Iterable[Path | str]) -> list[Path]:
    """Lists the run folders among some folders, right below them and in sweeps there, each once, by name.

    Raises:
        InputError: One of them is no folder.
    """
    found: list[Path] = []
    for place in map(Path, places):
        if not place.is_dir():
            raise InputError(f"{place}: is no folder; name run folders, or a folder of runs such as runs")
        found += [place] if is_run(place) else _below(place)
    return list(dict.fromkeys(found))


def _below(place):
    """The run folders right below a folder, and those of sweeps there."""
    inside = [place / name for name in sorted(os.listdir(place))]
    return [
        run for path in inside for run in ([path] if is_run(path) else _below(path) if (path / SWEEP).is_file() else [])
    ]


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, or what is left of one."""
    return (path / RECIPE).is_file() or (path / "checkpoints").is_dir()


def _of(run):
    found = checkpoints.newest_without_arrays(run.checkpoints)
    about = {} if found is None else facts.of(found, run.checkpoints)
    text = about["recipe"] if about else run.read_recipe()
    resolved = recipe.loads(text, str(run.recipe))
    done, last, best = about.get("round", 0), about.get("last") or {}, about.get("best") or {}
    metric = resolved.evaluate.best or _default_metric(last)
    if run.holder is not None:
        state = RUNNING
    else:
        state = FINISHED if done >= _rounds(run, resolved) else STOPPED
    return Overview(
        run.path,
        state,
        done,
        _rounds(run, resolved),
        resolved.name,
        metric,
        best.get(metric),
        last.get(metric),
        _changes(resolved),
    )


def _rounds(run, resolved):
    """The rounds that the run was last told to train: the copy of the recipe says so before a round is sealed."""
    try:
        return recipe.loads(run.read_recipe(), str(run.recipe)).rounds
    except InputError:
        return resolved.rounds


def _default_metric(row):
    """The metric that chose the best round of a recipe that names none."""
    if not row:
        return ""
    kind = "text" if "global_perplexity" in row else "images"
    return metrics.default_metric(kind, any(name.startswith("validation_") for name in row))


def _changes(resolved):
    """What differs from the shipped recipe of the same name; None where there is none."""
    named = [key for key in shipped() if resolved.name in (key.replace("/", "_"), key.rpartition("/")[2])]
    for key in named:
        original = recipe.load(key)
        if original.name == resolved.name:
            return tuple(_changed(original, resolved))
    return None


def _changed(original, resolved):
    """The keys that differ, with the mix of levels as a person writes it."""
    lines = recipe.changed_keys(original.source, resolved.source)
    others = [line for line in lines if not line.startswith("levels.mix.")]
    if len(others) < len(lines):
        others.insert(0, f"levels.mix: {_mix(original.levels)} -> {_mix(resolved.levels)}")
    return others


def _mix(levels):
    equal = len({share for _, share in levels.mix}) == 1
    return "-".join(name if equal else f"{name}{share:g}" for name, share in levels.mix)
