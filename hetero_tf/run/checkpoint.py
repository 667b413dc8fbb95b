"""Turns a state into the arrays that are sealed, and sealed arrays into a state."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import BadInput, NotFinite
from hetero_tf.evaluation import calibration
from hetero_tf.process import LearningProcess, State
from hetero_tf.rounds.state import from_named, named
from hetero_tf.store import sealed
from hetero_tf.store.states import STATISTICS


@dataclass(frozen=True)
class Opened:
    """A sealed state that was opened.

    Attributes:
        state: The state.
        statistics: `{path: value}` of static batch normalisation; empty where the round was not evaluated.
        sealed: What it was made from, with the facts and the seal.
        skipped: A sentence for each damaged newer state.
    """

    state: State
    statistics: dict
    sealed: sealed.Sealed
    skipped: tuple[str, ...]


def arrays_of(state: State, statistics: dict) -> dict[str, np.ndarray]:
    """Returns the arrays to seal, by name: those of a state, and of statistics where these are finite.

    Statistics that overflowed are left out: whoever needs them measures them again.

    Raises:
        NotFinite: A value of the state is NaN or infinite.
    """
    arrays = {name: np.asarray(value) for name, value in named(state).items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFinite(
                f"round {state.round} is not saved: {name!r} holds NaN or infinite values; the last checkpoint is kept"
            )
    measured = {STATISTICS + path: np.asarray(value) for path, value in statistics.items()}
    return arrays | (measured if all(np.isfinite(array).all() for array in measured.values()) else {})


def _with_statistics(state, statistics):
    """Every value to seal, by name."""
    return named(state) | {STATISTICS + path: value for path, value in statistics.items()}


def open_newest(folder: Path, process: LearningProcess) -> Opened | None:
    """Opens the newest whole sealed state; None if there is none.

    Raises:
        BadInput: It is of another recipe, or holds NaN or infinite weights.
    """
    blank = process.blank()
    paths = calibration.statistics_paths(process.evaluator.global_model)
    measured = {v.path: v for v in process.evaluator.global_model.non_trainable_variables if v.path in paths}
    specs = {
        name: (tuple(value.shape), getattr(value.dtype, "name", value.dtype))
        for name, value in _with_statistics(blank, measured).items()
    }
    optional = {STATISTICS + path for path in paths}
    newest = sealed.load_newest(folder, specs, optional=optional)
    if newest is None:
        return None
    _check_finite(folder, newest)

    state = from_named(newest.round, newest.arrays, blank)
    statistics = {path: newest.arrays[STATISTICS + path] for path in paths if STATISTICS + path in newest.arrays}
    return Opened(state, statistics, newest, newest.skipped)


def _check_finite(folder, found):
    """Refuses what no run goes on from; statistics may be infinite, as they are measured and not trained on."""
    for name, value in found.arrays.items():
        if not name.startswith(STATISTICS) and not np.isfinite(value).all():
            raise BadInput(
                f"{folder}: round {found.round} holds NaN or infinite values in {name!r}; restore the folder from a "
                "copy, or train again in another folder"
            )
