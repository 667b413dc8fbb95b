"""Mean absolute error, in the unit of numbers, or of the indices of classes."""

import tensorflow as tf

TARGETS = ("numbers", "label")
BETTER = "lower"
UNIT = ""


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean absolute error over all examples and targets."""
    predicted = tf.argmax(scores, -1) if targets.dtype.is_integer else scores
    return tf.reduce_mean(tf.abs(tf.cast(predicted, tf.float64) - tf.cast(targets, tf.float64)))
