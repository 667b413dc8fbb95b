"""Which level every client has: fixed for the run, or drawn anew each round."""

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.recipe.schema import Levels


def assign(levels: Levels, clients: int, seed: int, round: int, ids: np.ndarray) -> np.ndarray:
    """Returns the levels of some clients, as positions in `levels.mix`; those of other clients cost nothing.

    Args:
        levels: Of the recipe.
        clients: Number of registered clients.
        seed, round: The run's seed and the round, for dynamic assignment.
        ids: int [n], the clients that are asked for.

    Returns:
        int32 [n].

    Reference: HeteroFL authors' code. Fixed: consecutive clients in the order of the mix, those left over have the
    last level. Dynamic: every client draws independently with the shares as chances.
    """
    shares = np.asarray([share for _, share in levels.mix], float)
    if levels.assignment == "dynamic":
        ends, points = np.cumsum(shares) / shares.sum(), seeds.uniform(seed, "levels", round, ids=ids)
    else:
        whole_numbers = np.all(shares == np.round(shares))
        counts = shares * (clients // shares.sum()) if whole_numbers else np.floor(shares / shares.sum() * clients)
        ends, points = np.cumsum(counts), np.asarray(ids)
    # Without the last end, what lies behind it - clients left over, a sum just below 1 - has the last level.
    return np.searchsorted(ends[:-1], points, side="right").astype(np.int32)
