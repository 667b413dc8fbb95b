"""Mean absolute error, in the unit of the targets."""

import tensorflow as tf

TARGETS = ("numbers",)
BETTER = "lower"
UNIT = ""


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean absolute error over all examples and targets."""
    return tf.reduce_mean(tf.abs(tf.cast(scores, tf.float64) - tf.cast(targets, tf.float64)))
