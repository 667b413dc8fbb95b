"""Expected calibration error in percent: the distance between the confidence and the accuracy of predictions."""

import tensorflow as tf

TARGETS = ("label", "label_map")
BETTER = "lower"
UNIT = "%"
PROBABILITIES = True
BINS = 15


def metric(scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Return the mean over bins of equal width of `|accuracy - confidence|`, weighted by their number of examples.

    Reference: Guo et al., On Calibration of Modern Neural Networks, ICML 2017 (arXiv 1706.04599), section 2, with
    the 15 bins of its experiments.
    """
    scores = tf.reshape(tf.cast(scores, tf.float64), [-1, scores.shape[-1]])
    confidence = tf.exp(tf.reduce_max(scores, 1) - tf.reduce_logsumexp(scores, 1))
    hits = tf.cast(tf.equal(tf.argmax(scores, 1, tf.int32), tf.reshape(targets, [-1])), tf.float64)
    # Bins are (low, high], so that a confidence on an edge is in the lower one.
    bins = tf.clip_by_value(tf.cast(tf.math.ceil(confidence * BINS), tf.int32) - 1, 0, BINS - 1)
    gaps = tf.math.unsorted_segment_sum(hits - confidence, bins, BINS)
    return 100 * tf.reduce_sum(tf.abs(gaps)) / tf.cast(tf.size(hits), tf.float64)
