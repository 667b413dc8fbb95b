"""Make a test split for data that have none."""

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.seeds import rng
from hetero_tf.data.dataset import Split
from hetero_tf.data.targets import strata


def held_out(labels: np.ndarray, share: float, source: str, groups: np.ndarray | None = None) -> np.ndarray:
    """Draw a deterministic stratified test split; at least one example of each label stays in training.

    Args:
        labels: int `[n]`; equal labels give equal draws.
        share: Share of the examples, above 0 and below 1.
        source: Description of the data, for the message.
        groups: Number of the group of each example, whose examples are drawn together; None: each one is a group.

    Returns:
        bool `[n]`, True for a test example.
    """
    if not 0 < share < 1:
        raise InputError(f"`test_share` must be above 0 and below 1. Received: test_share={share}")
    if groups is not None:
        _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
        return held_out(labels[first], share, source)[groups]
    is_test, generator = np.zeros(len(labels), bool), rng(0, "held out for tests")
    for label in np.unique(labels):
        indices = generator.permutation(np.flatnonzero(labels == label))
        is_test[indices[: min(round(share * len(indices)), len(indices) - 1)]] = True
    if not is_test.any():
        raise InputError(
            f"{source}: `test_share` is too small for any test example; use a larger share or more examples. "
            f"Received: test_share={share} of {len(labels)} examples"
        )
    return is_test


def hold_out(split: Split, share: float, source: str) -> tuple[Split, Split]:
    """Return the training and the test split that `held_out` draws from the classes of a split, see `strata`."""
    (classes,) = strata(split.labels)
    is_test = held_out(classes, share, source)
    return split.select(~is_test), split.select(is_test)
