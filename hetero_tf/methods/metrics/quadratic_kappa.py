"""Quadratic weighted kappa, from -1 to 1."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label",)
BETTER = "higher"
UNIT = ""


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return `1 - sum of squared errors / their expectation for independent predictions`, of class indices.

    As `sklearn.metrics.cohen_kappa_score(weights="quadratic")`: NaN if all targets and predictions are one class.

    Reference: Cohen, Weighted Kappa, Psychological Bulletin 70 (1968).
    """
    true, predicted, _ = counts(scores, targets)
    classes = tf.range(scores.shape[-1], dtype=tf.float64)
    squares = tf.square(classes[:, None] - classes)
    total = tf.reduce_sum(true)
    errors = tf.square(tf.cast(tf.argmax(scores, -1, tf.int32) - tf.cast(targets, tf.int32), tf.float64))
    expected = tf.reduce_sum(squares * true[:, None] * predicted) / total
    return 1 - tf.reduce_sum(errors) / expected
