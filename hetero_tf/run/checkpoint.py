"""Sealed arrays to a state and back."""

import numpy as np

from hetero_tf.evaluation import calibration
from hetero_tf.process import State
from hetero_tf.store import sealed

WEIGHTS, STATISTICS, SERVER, CLIENTS = "weights/", "statistics/", "server/", "clients/"


def packed(state, statistics):
    """The arrays to seal: `{name: array}` of a `process.State`, and of statistics where there are any."""
    return {name: np.asarray(value) for name, value in _named(state, statistics).items()}


def _named(state, statistics):
    """Every value of a state under the name by which it is sealed."""
    found = {WEIGHTS + path: value for path, value in state.weights.items()}
    for prefix, tables in ((SERVER, state.server), (CLIENTS, state.clients)):
        found |= {f"{prefix}{name}/{path}": value for name, table in tables.items() for path, value in table.items()}
    return found | {STATISTICS + path: value for path, value in statistics.items()}


def open_newest(folder, process):
    """The newest whole sealed state: (State, statistics, info, skipped), or None if there is none.

    Statistics are empty where the round was not evaluated.
    """
    wanted = process.blank()
    paths = calibration.statistics_paths(process.evaluator.global_model)
    measured = {v.path: v for v in process.evaluator.global_model.non_trainable_variables if v.path in paths}
    specs = {
        name: (tuple(value.shape), getattr(value.dtype, "name", value.dtype))
        for name, value in _named(wanted, measured).items()
    }
    optional = {STATISTICS + path for path in paths}
    found = sealed.load_newest(folder, specs, optional=optional)
    if found is None:
        return None

    def table(prefix, tables):
        return {
            name: {path: found.arrays[f"{prefix}{name}/{path}"] for path in table} for name, table in tables.items()
        }

    state = State(
        found.round,
        {path: found.arrays[WEIGHTS + path] for path in wanted.weights},
        table(SERVER, wanted.server),
        table(CLIENTS, wanted.clients),
    )
    have = {path: found.arrays[STATISTICS + path] for path in paths if STATISTICS + path in found.arrays}
    return state, have, found.info, found.skipped
