"""What a server with a memory needs: nothing moves where nothing is covered."""

import tensorflow as tf


def where_covered(
    coverage: tf.Tensor, new: tuple[tf.Tensor, ...], old: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Each tensor of `new` where a client covers the entry, that of `old` elsewhere, bit for bit.

    Args:
        coverage: Broadcastable to the tensors; an entry is covered where it is above 0.
        new, old: Equally many tensors of one shape.

    Returns:
        The first tensor (the weights) and a tuple of the others (the slots).
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old[0]))
    weights, *slots = (tf.where(covered, after, before) for after, before in zip(new, old, strict=True))
    return weights, tuple(slots)
