"""Assignment of levels to clients: fixed for the run, or drawn in every round."""

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.recipe.schema import Levels


def assign_levels(levels: Levels, clients: int, seed: int, round: int, ids: np.ndarray) -> np.ndarray:
    """Return the levels of some clients as indices into `levels.mix`, without computing those of others.

    Args:
        seed, round: The run's seed and the round, for dynamic assignment.
        ids: int [n], the clients.

    Returns:
        int32 [n]; the last level for clients that never train because no level fits their device.

    Reference: HeteroFL authors' code. Fixed: consecutive clients in the order of the mix; remaining clients have the
    last level. Dynamic: every client draws independently, with the shares as probabilities.
    """
    if levels.level_of_client is not None:
        by_device = levels.level_of_client[ids].astype(np.int32)
        return np.where(by_device < 0, len(levels.names) - 1, by_device)
    shares = np.asarray(list(levels.mix.values()), float)
    if levels.assignment == "dynamic":
        ends, points = np.cumsum(shares) / shares.sum(), seeds.uniform(seed, "levels", round, ids=ids)
    else:
        whole_numbers = np.all(shares == np.round(shares))
        counts = shares * (clients // shares.sum()) if whole_numbers else np.floor(shares / shares.sum() * clients)
        ends, points = np.cumsum(counts), np.asarray(ids)
    # Dropping the last end gives the last level to remaining clients, and to points above a sum just below 1.
    return np.searchsorted(ends[:-1], points, side="right").astype(np.int32)
