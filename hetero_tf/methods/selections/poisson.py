"""Poisson: every able client is chosen independently, so the number of clients of a round varies."""

import numpy as np

from hetero_tf.methods.selections import ClientPool

SAMPLING = "poisson"
CONFLICTS = {
    "networks are dealt to cohorts of equal size": {"levels.members": True},
    "this policy counts the clients that start": {"round.policy": ["over_selection", "buffered", "immediate"]},
}


def choose(pool: ClientPool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw each client with the probability `count / able`; a round may have no client.

    Reference: the sampling of DP-FedAvg (McMahan et al. 2018, arXiv 1710.06963), for which accountants of differential
    privacy have their tightest bounds.
    """
    ids = pool.ids
    # A binomial number of clients, and each set of that size with equal probability, equals independent draws.
    return rng.choice(ids, rng.binomial(len(ids), count / len(ids)), replace=False)
