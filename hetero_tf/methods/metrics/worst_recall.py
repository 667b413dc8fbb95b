"""Recall in percent of the class with the lowest one."""

import tensorflow as tf

from hetero_tf.methods.metrics.balanced_accuracy import recalls

TARGETS = ("label", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the lowest recall among the classes with a target."""
    return 100 * tf.reduce_min(recalls(scores, targets))
