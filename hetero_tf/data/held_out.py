"""A test split for data that come without one."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.seeds import rng


def held_out(labels: np.ndarray, share: float, source: str) -> np.ndarray:
    """Draws the test examples, the same at every call: of each label its share, and never the last example of one.

    Args:
        labels: int `[n]`.
        share: Of the examples, above 0 and below 1.
        source: For the refusal.

    Returns:
        bool `[n]`, True for a test example; equal labels give equal draws.

    Raises:
        InputError: The share is impossible, or leaves no test example.
    """
    if not 0 < share < 1:
        raise InputError(f"`test_share` must be above 0 and below 1. Received: test_share={share}")
    tested, generator = np.zeros(len(labels), bool), rng(0, "held out for tests")
    for label in np.unique(labels):
        own = generator.permutation(np.flatnonzero(labels == label))
        tested[own[: min(round(share * len(own)), len(own) - 1)]] = True
    if not tested.any():
        raise InputError(
            f"{source}: `test_share` leaves no test example; use a larger share or more examples. "
            f"Received: test_share={share} of {len(labels)} examples"
        )
    return tested
