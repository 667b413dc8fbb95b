"""Sealed arrays to a state and back."""

import numpy as np

from hetero_tf import calibration
from hetero_tf.process import State
from hetero_tf.store import sealed

WEIGHTS, STATISTICS = "weights/", "statistics/"


def packed(state, statistics):
    """The arrays to seal: `{name: array}` of a `process.State`, and of statistics where there are any."""
    values = {WEIGHTS + path: np.asarray(value) for path, value in state.weights.items()}
    return values | {STATISTICS + path: np.asarray(value) for path, value in statistics.items()}


def open_newest(folder, process):
    """The newest whole sealed state: (State, statistics, info, skipped), or None if there is none.

    Statistics are empty where the round was not evaluated.
    """
    weights, statistics = _expected(process)
    found = sealed.load_newest(folder, weights | statistics, optional=statistics)
    if found is None:
        return None
    state = State(found.round, _unprefixed(found.arrays, weights, WEIGHTS))
    have = [name for name in statistics if name in found.arrays]
    return state, _unprefixed(found.arrays, have, STATISTICS), found.info, found.skipped


def _expected(process):
    """Name -> (shape, type) of every sealed weight, and of every statistic."""
    model = process.global_model
    paths = calibration.statistics_paths(model)

    def specs(prefix, variables):
        return {prefix + v.path: (tuple(v.shape), v.dtype) for v in variables}

    return (specs(WEIGHTS, model.trainable_variables),
            specs(STATISTICS, [v for v in model.non_trainable_variables if v.path in paths]))


def _unprefixed(values, names, prefix):
    return {name.removeprefix(prefix): values[name] for name in names}
