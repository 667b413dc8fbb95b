"""Intersection over union in percent, mean over classes."""

import tensorflow as tf

from hetero_tf.methods.metrics.macro_f1 import counts

TARGETS = ("label_map",)
BETTER = "higher"
UNIT = "%"


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean over classes that occur in targets or predictions of `TP / (TP + FP + FN)`, over all pixels.

    As `keras.metrics.MeanIoU`, and as `sklearn.metrics.jaccard_score(average="macro")` of the pixels.
    """
    true, predicted, both = counts(scores, targets)
    union = true + predicted - both
    occurs = union > 0
    return 100 * tf.reduce_mean(tf.boolean_mask(both, occurs) / tf.boolean_mask(union, occurs))
