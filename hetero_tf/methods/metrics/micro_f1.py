"""F1 score in percent, over all pairs of example and label."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label", "label_set", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return `2 TP / (2 TP + FP + FN)` of the summed counts; for one label per example it equals the accuracy."""
    true, predicted, both = (tf.reduce_sum(count) for count in counts(scores, targets))
    return 100 * tf.math.divide_no_nan(2 * both, true + predicted)
