"""Names of the arrays of a checkpoint, and the global weights of a run folder."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.runs import checkpoints
from hetero_tf.runs.run_folder import RunFolder

WEIGHTS, STATISTICS, SERVER, CLIENTS, HISTORY = "weights/", "statistics/", "server/", "clients/", "history/"
# Sums of results that arrive in later rounds: pending/SUM/PATH.
PENDING = "pending/"
# Statistics of the other levels: level_statistics/LEVEL/PATH.
LEVEL_STATISTICS = "level_statistics/"
# Values of personal units: [clients, ...] for each path.
PERSONAL = CLIENTS + "personal/"


def global_weights(run: RunFolder) -> tuple[dict[str, np.ndarray], str]:
    """Read the weights of a run's global model from its best state, or else from its newest checkpoint.

    Personal units have no global values; their weights are the mean over the clients.

    Args:
        run: The folder of the run, which may still be training.

    Returns:
        `{variable path: array}`, and the name of the state, such as "runs/digits/best, round 12".

    Raises:
        InputError: The folder holds no run, no checkpoint yet, or only damaged checkpoints.
        DiskProblem, MemoryProblem: See `checkpoints.load_newest`.
    """
    run.check_started()
    for folder in (run.best, run.checkpoints):
        checkpoint = checkpoints.load_newest(folder)
        if checkpoint is not None:
            return _global(checkpoint.arrays), f"{folder}, round {checkpoint.round}"
    raise InputError(f"{run.path}: holds no finished round yet; train that run first")


def _global(arrays):
    weights = {name.removeprefix(WEIGHTS): value for name, value in arrays.items() if name.startswith(WEIGHTS)}
    personal = {name.removeprefix(PERSONAL): value for name, value in arrays.items() if name.startswith(PERSONAL)}
    return weights | {path: value.mean(axis=0, dtype=value.dtype) for path, value in personal.items()}
