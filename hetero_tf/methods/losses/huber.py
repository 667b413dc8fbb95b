"""Mean over the targets of the Huber loss: squared for small errors, linear for large ones."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive

TARGETS = ("numbers",)
MASKS_LABELS = False


def loss(
    outputs: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int, *, delta: Positive = 1.0
) -> tf.Tensor:
    """`error**2 / 2` up to `delta`, else `delta * (|error| - delta / 2)`, of every example.

    Args:
        delta: error at which the loss becomes linear, in the unit of the outputs

    Reference: Huber 1964; as `keras.losses.Huber` without reduction.
    """
    error = tf.abs(outputs - tf.cast(targets, outputs.dtype))
    return tf.reduce_mean(tf.where(error <= delta, error * error / 2, delta * (error - delta / 2)), -1)
