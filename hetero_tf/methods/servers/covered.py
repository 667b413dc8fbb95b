"""Restricts a server step to covered entries; every server with slots needs it."""

import tensorflow as tf


def where_covered(
    coverage: tf.Tensor, new: tuple[tf.Tensor, ...], old: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Select `new` for entries that a client covers, and `old` bit by bit for the others.

    Args:
        coverage: Broadcastable to the tensors; an entry is covered if it is above 0.
        new, old: Tensors of one shape, the same number in both.

    Returns:
        The first tensor (the weights) and a tuple of the others (the slots).
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old[0]))
    weights, *slots = (tf.where(covered, after, before) for after, before in zip(new, old, strict=True))
    return weights, tuple(slots)
