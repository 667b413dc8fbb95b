"""Accuracy in percent."""

import tensorflow as tf

TARGETS = ("label", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the percentage of examples, or of pixels, whose class has the highest score, in the type of the scores."""
    return 100 * tf.reduce_mean(hits(scores, targets))


def hits(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return 1 for each target that has the highest score, else 0, in the type of the scores."""
    return tf.cast(tf.equal(tf.argmax(scores, -1, tf.int32), tf.cast(targets, tf.int32)), scores.dtype)
