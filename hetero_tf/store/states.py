"""The names under which the parts of a state are sealed, and the weights that a run folder offers to others."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.store import checkpoints
from hetero_tf.store.run_folder import RunFolder

WEIGHTS, STATISTICS, SERVER, CLIENTS = "weights/", "statistics/", "server/", "clients/"
# Of levels other than the global one: the name of the level follows, then the path.
LEVEL_STATISTICS = "level_statistics/"
# What stays with the clients: [clients, ...] of each path.
PERSONAL = CLIENTS + "personal/"


def global_weights(run: RunFolder) -> tuple[dict[str, np.ndarray], str]:
    """Reads the weights of a run's global model: of its best state, or of its newest checkpoint if it has no best one.

    Units that stay with the clients have no global values; there it is the mean over the clients.

    Args:
        run: The folder of the run, which may be training still.

    Returns:
        `{variable path: array}`, and the state that they are of, such as "runs/digits/best, round 12".

    Raises:
        InputError: The folder is not a run's, no state was sealed yet, or none of the sealed ones is whole.
        DiskProblem, MemoryProblem: See `sealed.load_newest`.
    """
    run.check_started()
    for folder in (run.best, run.checkpoints):
        found = checkpoints.load_newest(folder)
        if found is not None:
            return _global(found.arrays), f"{folder}, round {found.round}"
    raise InputError(f"{run.path}: holds no finished round yet; train that run first")


def _global(arrays):
    weights = {name.removeprefix(WEIGHTS): value for name, value in arrays.items() if name.startswith(WEIGHTS)}
    own = {name.removeprefix(PERSONAL): value for name, value in arrays.items() if name.startswith(PERSONAL)}
    return weights | {path: value.mean(axis=0, dtype=value.dtype) for path, value in own.items()}
