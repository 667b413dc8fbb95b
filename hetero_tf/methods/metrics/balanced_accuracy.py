"""Balanced accuracy in percent: the recall of a class, mean over classes."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean recall over the classes with a target, as `sklearn.metrics.balanced_accuracy_score`."""
    return 100 * tf.reduce_mean(recalls(scores, targets))


def recalls(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the recall of each class with a target, float64 [classes with a target]."""
    true, _, both = counts(scores, targets)
    occurs = true > 0
    return tf.boolean_mask(both, occurs) / tf.boolean_mask(true, occurs)
