"""Area under the ROC curve in percent, of each class against the rest, mean over classes."""

import tensorflow as tf

TARGETS = ("label", "label_set")
BETTER = "higher"
UNIT = "%"
PROBABILITIES = True


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean over classes of the share of correctly ordered pairs; equal scores count half.

    Scores are compared as probabilities, as `sklearn.metrics.roc_auc_score(average="macro", multi_class="ovr")` does.
    Classes without a positive or without a negative example are left out; NaN if all are.
    """
    scores = tf.cast(scores, tf.float64)
    if targets.dtype != tf.bool:
        scores = scores - tf.reduce_logsumexp(scores, -1, keepdims=True)
        targets = tf.one_hot(targets, scores.shape[-1], True, False)
    columns = tf.transpose(scores), tf.transpose(targets)
    positives = tf.reduce_sum(tf.cast(columns[1], tf.float64), 1)
    negatives = tf.cast(tf.shape(scores)[0], tf.float64) - positives
    ranks = tf.map_fn(_positive_ranks, columns, fn_output_signature=tf.float64)
    both = tf.logical_and(positives > 0, negatives > 0)
    areas = tf.math.divide_no_nan(ranks - positives * (positives + 1) / 2, positives * negatives)
    return 100 * tf.reduce_mean(tf.boolean_mask(areas, both))


def _positive_ranks(column):
    """Return the sum of the ranks of the positive examples; equal scores share their mean rank."""
    scores, targets = column
    ordered = tf.sort(scores)
    below = tf.searchsorted(ordered, scores, side="left")
    upto = tf.searchsorted(ordered, scores, side="right")
    ranks = tf.cast(below + 1 + upto, tf.float64) / 2
    return tf.reduce_sum(tf.where(targets, ranks, 0))
