"""Recall in percent of the class with the lowest one."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label", "label_map")
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the lowest recall among the classes with a target."""
    true, _, both = counts(scores, targets)
    occurs = true > 0
    return 100 * tf.reduce_min(tf.boolean_mask(both, occurs) / tf.boolean_mask(true, occurs))
