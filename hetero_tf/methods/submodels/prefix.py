"""Prefix: the first coordinates, so that every level is part of every wider one."""

import tensorflow as tf


def keep(size: int, kept: int, round: tf.Tensor, client: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The first `kept` of `size` coordinates, whatever the round and the client.

    Reference: HeteroFL (arXiv 2010.01264), section 3.1.
    """
    return tf.range(kept)
