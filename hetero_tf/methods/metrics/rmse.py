"""Root mean squared error, in the unit of the targets."""

import tensorflow as tf

TARGETS = ("numbers",)
BETTER = "lower"
UNIT = ""


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the square root of the mean squared error over all examples and targets."""
    return tf.sqrt(tf.reduce_mean(tf.square(tf.cast(scores, tf.float64) - tf.cast(targets, tf.float64))))
