"""Uniform: every able client is chosen with the same probability."""

import numpy as np

from hetero_tf.methods.selections import ClientPool

SAMPLING = "fixed"


def choose(pool: ClientPool, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw clients without replacement, in constant time if all clients may train."""
    return rng.choice(pool.able, count, replace=False)
