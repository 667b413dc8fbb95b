"""Turns a state into the arrays that are sealed, and sealed arrays into a state."""

from pathlib import Path

import numpy as np

from hetero_tf.evaluation import calibration
from hetero_tf.process import LearningProcess, State
from hetero_tf.store import sealed

WEIGHTS, STATISTICS, SERVER, CLIENTS = "weights/", "statistics/", "server/", "clients/"


def arrays_of(state: State, statistics: dict) -> dict[str, np.ndarray]:
    """Returns the arrays to seal, by name: those of a state, and of statistics where there are any."""
    return {name: np.asarray(value) for name, value in _named(state, statistics).items()}


def _named(state, statistics):
    """Every value of a state under the name by which it is sealed."""
    named = {WEIGHTS + path: value for path, value in state.weights.items()}
    for prefix, tables in ((SERVER, state.server), (CLIENTS, state.clients)):
        named |= {f"{prefix}{name}/{path}": value for name, table in tables.items() for path, value in table.items()}
    return named | {STATISTICS + path: value for path, value in statistics.items()}


def open_newest(folder: Path, process: LearningProcess) -> tuple[State, dict, dict, tuple] | None:
    """Opens the newest whole sealed state: (state, statistics, info, skipped), or None if there is none.

    Statistics are empty where the round was not evaluated; skipped holds a sentence for each damaged newer state.
    """
    blank = process.blank()
    paths = calibration.statistics_paths(process.evaluator.global_model)
    measured = {v.path: v for v in process.evaluator.global_model.non_trainable_variables if v.path in paths}
    specs = {
        name: (tuple(value.shape), getattr(value.dtype, "name", value.dtype))
        for name, value in _named(blank, measured).items()
    }
    optional = {STATISTICS + path for path in paths}
    newest = sealed.load_newest(folder, specs, optional=optional)
    if newest is None:
        return None

    def table(prefix, tables):
        return {
            name: {path: newest.arrays[f"{prefix}{name}/{path}"] for path in table} for name, table in tables.items()
        }

    state = State(
        newest.round,
        {path: newest.arrays[WEIGHTS + path] for path in blank.weights},
        table(SERVER, blank.server),
        table(CLIENTS, blank.clients),
    )
    statistics = {path: newest.arrays[STATISTICS + path] for path in paths if STATISTICS + path in newest.arrays}
    return state, statistics, newest.info, newest.skipped
