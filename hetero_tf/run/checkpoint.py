"""Turns a state into the arrays that are sealed, and sealed arrays into a state."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, NotFinite
from hetero_tf.models.state import from_named, named
from hetero_tf.models.variables import queried
from hetero_tf.process.learning_process import LearningProcess, State
from hetero_tf.store import checkpoints as sealed
from hetero_tf.store.states import LEVEL_STATISTICS, STATISTICS


@dataclass(frozen=True)
class Opened:
    """A sealed state that was opened.

    Attributes:
        state: The state.
        statistics: `{level: {path: value}}` of static batch normalisation, for the levels that the round measured.
        sealed: What it was made from, with the facts and the seal.
        skipped: A sentence for each damaged newer state.
    """

    state: State
    statistics: dict
    sealed: sealed.Sealed
    skipped: tuple[str, ...]


def arrays_of(state: State, statistics: dict, global_level: str) -> dict[str, np.ndarray]:
    """Returns the arrays to seal, by name: those of a state, and of the statistics of each level where they are finite.

    Statistics that overflowed are left out: commands that need them query them again.

    Args:
        state: `State`.
        statistics: `{level: {path: value}}`, see `LearningProcess.evaluate`.
        global_level: The level whose statistics are sealed without its name.

    Raises:
        NotFinite: A value of the state is NaN or infinite.
    """
    arrays = {name: np.asarray(value) for name, value in named(state).items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(
                f"round {state.round} is not saved: {name!r} holds NaN or infinite values; the last checkpoint is kept"
            )
    for level, values in statistics.items():
        prefix = _prefix(level, global_level)
        measured = {prefix + path: np.asarray(value) for path, value in values.items()}
        if all(np.isfinite(array).all() for array in measured.values()):
            arrays |= measured
    return arrays


def _prefix(level, global_level):
    """The beginning of the names of a level's sealed statistics."""
    return STATISTICS if level == global_level else f"{LEVEL_STATISTICS}{level}/"


def _level_and_path(name, global_level):
    """The level and the variable path of a sealed statistic; (None, None) for other names."""
    if name.startswith(STATISTICS):
        return global_level, name.removeprefix(STATISTICS)
    level, _, path = name.removeprefix(LEVEL_STATISTICS).partition("/")
    return (level, path) if name.startswith(LEVEL_STATISTICS) else (None, None)


def _spec(value):
    """The shape and the name of the dtype of an array or a variable."""
    return tuple(value.shape), getattr(value.dtype, "name", value.dtype)


def open_newest(folder: Path, process: LearningProcess) -> Opened | None:
    """Opens the newest whole sealed state; None if there is none.

    Raises:
        InputError: It is of another recipe, or holds NaN or infinite weights.
    """
    blank, levels = process.blank(), process.recipe.levels
    specs = {name: _spec(value) for name, value in named(blank).items()}

    def statistic(name):
        """The shape and the dtype of a sealed statistic; a level's model is built when the state has some of it."""
        level, path = _level_and_path(name, levels.global_level)
        if level not in {levels.global_level, *levels.names}:
            return None
        return {v.path: _spec(v) for v in queried(process.family.predictor(level))}.get(path)

    newest = sealed.load_newest(folder, specs, statistic)
    if newest is None:
        return None
    _check_finite(folder, newest)

    state = from_named(newest.round, newest.arrays, blank)
    statistics: dict[str, dict] = {}
    for name in newest.arrays.keys() - specs.keys():
        level, path = _level_and_path(name, levels.global_level)
        statistics.setdefault(level, {})[path] = newest.arrays[name]
    return Opened(state, statistics, newest, newest.skipped)


def _check_finite(folder, found):
    """Refuses what no run goes on from; statistics may be infinite, as they are measured and not trained on."""
    for name, value in found.arrays.items():
        if not name.startswith((STATISTICS, LEVEL_STATISTICS)) and not np.isfinite(value).all():
            raise InputError(
                f"{folder}: round {found.round} holds NaN or infinite values in {name!r}; restore the folder from a "
                "copy, or train again in another folder"
            )
