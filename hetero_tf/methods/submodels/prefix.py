"""Prefix: the first coordinates, so every level is part of each wider level."""

import tensorflow as tf


def keep(size: int, count: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Return the first `count` of `size` coordinates, the same for all rounds and clients.

    Reference: HeteroFL (arXiv 2010.01264), section 3.1.
    """
    return tf.range(count)
