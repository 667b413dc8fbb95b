"""Coefficient of determination, mean over the targets: 1 for a perfect model, 0 for predicting their mean."""

import tensorflow as tf

TARGETS = ("numbers",)
BETTER = "higher"
UNIT = ""


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return `1 - sum of squared errors / sum of squared deviations from the mean of the split`.

    As `sklearn.metrics.r2_score`, also for a constant target: 1 if all predictions are exact, else 0.
    """
    scores, targets = tf.cast(scores, tf.float64), tf.cast(targets, tf.float64)
    errors = tf.reduce_sum(tf.square(targets - scores), 0)
    deviations = tf.reduce_sum(tf.square(targets - tf.reduce_mean(targets, 0)), 0)
    constant = tf.cast(errors == 0, tf.float64)
    return tf.reduce_mean(tf.where(deviations > 0, 1 - tf.math.divide_no_nan(errors, deviations), constant))
