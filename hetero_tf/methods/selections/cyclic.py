"""Cyclic: the clients train in a fixed order, so that each waits equally long between two of its rounds."""

import numpy as np

from hetero_tf.methods.selections import ClientPool

SAMPLING = "cyclic"
CONFLICTS = {"this policy chooses more clients than a round merges": {"round.policy": "over_selection"}}


def choose(pool: ClientPool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the next `count` clients of an order that starts again after the last one; it mixes levels and owners.

    Reference: the participation of DP-FTRL without sampling (Kairouz et al. 2021, arXiv 2103.00039).
    """
    # Every round draws the same order.
    ids = np.random.default_rng(len(pool.ids)).permutation(pool.ids)
    return ids[np.arange(pool.round * count, (pool.round + 1) * count) % len(ids)]
