"""Average precision in percent, mean over the labels."""

import tensorflow as tf

TARGETS = ("label_set",)
BETTER = "higher"
UNIT = "%"
PROBABILITIES = True


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean over labels of the sum of precision at each threshold times the recall that it adds.

    As `sklearn.metrics.average_precision_score(average="macro")`: examples with equal scores share a threshold, and a
    label without a positive example counts 0.
    """
    columns = tf.transpose(tf.cast(scores, tf.float64)), tf.transpose(tf.cast(targets, tf.float64))
    return 100 * tf.reduce_mean(tf.map_fn(_average_precision, columns, fn_output_signature=tf.float64))


def _average_precision(column):
    scores, targets = column
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    scores, hits = tf.gather(scores, order), tf.cumsum(tf.gather(targets, order))
    # The last example of each group of equal scores.
    last = tf.concat([tf.not_equal(scores[1:], scores[:-1]), [True]], 0)
    hits, ranks = tf.boolean_mask(hits, last), tf.cast(tf.where(last)[:, 0] + 1, tf.float64)
    added = hits - tf.concat([[0.0], hits[:-1]], 0)
    return tf.math.divide_no_nan(tf.reduce_sum(added * hits / ranks), tf.reduce_sum(targets))
