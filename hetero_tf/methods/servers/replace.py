"""Replace: the merged weights are the new global weights."""

import tensorflow as tf

SLOTS = ()


def apply(
    old: tf.Tensor, mean: tf.Tensor, coverage: tf.Tensor, slots: tuple[tf.Tensor, ...], *, registered
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Return the mean, which is the old value for uncovered entries (HeteroFL, FedAvg)."""
    return mean, slots
