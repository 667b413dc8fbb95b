"""Converts a state to the arrays of a checkpoint and back."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, NotFinite
from hetero_tf.models.state import flatten_state, unflatten_state
from hetero_tf.run.learning_process import LearningProcess, State
from hetero_tf.runs import checkpoints, facts
from hetero_tf.runs.facts import LEVEL_STATISTICS, STATISTICS
from hetero_tf.runs.run_folder import RunFolder


@dataclass(frozen=True)
class LoadedState:
    """A state loaded from a checkpoint.

    Attributes:
        statistics: `{level: {path: value}}` of static batch normalisation, for the levels that the round evaluated.
        checkpoint: The checkpoint that it was read from, with its info.
    """

    state: State
    statistics: dict
    checkpoint: checkpoints.SavedRound


def arrays_of(state: State, statistics: dict, global_level: str) -> dict[str, np.ndarray]:
    """Return the arrays of a checkpoint by name: those of the state, and finite statistics of each level.

    Statistics that overflowed are omitted: commands that need them query them again.

    Args:
        statistics: `{level: {path: value}}`, see `LearningProcess.evaluate`.
        global_level: The level whose statistics are stored without its name.

    Raises:
        NotFinite: A value of the state is NaN or infinite.
    """
    arrays = {name: np.asarray(value) for name, value in flatten_state(state).items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(
                f"round {state.round} is not saved: {name!r} holds NaN or infinite values; the last checkpoint is kept"
            )
    for level, values in statistics.items():
        prefix = STATISTICS if level == global_level else f"{LEVEL_STATISTICS}{level}/"
        measured = {prefix + path: np.asarray(value) for path, value in values.items()}
        if all(np.isfinite(array).all() for array in measured.values()):
            arrays |= measured
    return arrays


def _level_and_path(name, global_level):
    """The level and the variable path of a stored statistic; (None, None) for other names."""
    if name.startswith(STATISTICS):
        return global_level, name.removeprefix(STATISTICS)
    level, _, path = name.removeprefix(LEVEL_STATISTICS).partition("/")
    return (level, path) if name.startswith(LEVEL_STATISTICS) else (None, None)


def _spec(value):
    return tuple(value.shape), getattr(value.dtype, "name", value.dtype)


def open_newest(folder: Path, process: LearningProcess) -> LoadedState | None:
    """Load the newest valid checkpoint; None if there is none.

    Raises:
        InputError: The state is of another recipe, or contains NaN or infinite weights.
    """
    return _open(functools.partial(checkpoints.load_newest, folder), folder, process)


def open_best(run: RunFolder, process: LearningProcess) -> LoadedState | None:
    """Load the checkpoint of the best round of a run; see `open_newest`."""
    return _open(functools.partial(facts.load_best, run), run.checkpoints, process)


def _open(load, folder, process):
    blank, levels = process.blank(), process.recipe.levels
    specs = {name: _spec(value) for name, value in flatten_state(blank).items()}

    @functools.cache
    def statistics_of(level):
        """Specs of a level's statistics by path. Its model is only built if the checkpoint has some of them."""
        if level not in {levels.global_level, *levels.names}:
            return {}
        return {variable.path: _spec(variable) for variable in process.evaluator.queried(level)}

    def statistic(name):
        level, path = _level_and_path(name, levels.global_level)
        return statistics_of(level).get(path)

    checkpoint = load(specs, statistic)
    if checkpoint is None:
        return None
    for name, value in checkpoint.arrays.items():
        # Statistics may be infinite: they are measured, not trained.
        if not name.startswith((STATISTICS, LEVEL_STATISTICS)) and not np.isfinite(value).all():
            raise InputError(
                f"{folder}: round {checkpoint.round} holds NaN or infinite values in {name!r}; restore the folder "
                "from a copy, or train again in another folder"
            )
    state = unflatten_state(checkpoint.round, checkpoint.arrays, blank)
    statistics: dict[str, dict] = {}
    for name in checkpoint.arrays.keys() - specs.keys():
        level, path = _level_and_path(name, levels.global_level)
        statistics.setdefault(level, {})[path] = checkpoint.arrays[name]
    return LoadedState(state, statistics, checkpoint)
