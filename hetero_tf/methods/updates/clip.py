"""Clip: limits the L2 norm of each client's update."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive


def update(weights: tf.Tensor, start: tf.Tensor, steps: tf.Tensor, key: tf.Tensor, *, norm: Positive) -> tf.Tensor:
    """`start + (weights - start) * min(1, norm / |weights - start|)`, with the L2 norm over all of a client's values.

    Args:
        norm: largest L2 norm of a client's update.

    Reference: McMahan et al. 2018 (arXiv 1710.06963), flat clipping of DP-FedAvg.
    """
    change = weights - start
    length = tf.norm(change, axis=1, keepdims=True)
    return tf.where(
        length > norm, start + change * tf.math.divide_no_nan(tf.constant(norm, length.dtype), length), weights
    )
