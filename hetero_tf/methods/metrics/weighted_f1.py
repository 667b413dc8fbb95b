"""F1 score in percent, mean over the labels weighted by their number of targets."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label", "label_set", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the weighted mean of `2 TP / (2 TP + FP + FN)`, as `sklearn.metrics.f1_score(average="weighted")`."""
    true, predicted, both = counts(scores, targets)
    f1 = tf.math.divide_no_nan(2 * both, true + predicted)
    return 100 * tf.math.divide_no_nan(tf.reduce_sum(f1 * true), tf.reduce_sum(true))
