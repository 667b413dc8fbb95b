"""Bounded: updates that are much longer than those of the other clients are shortened."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive
from hetero_tf.methods.merges import covered_mean, entry_weights, middle_mean, root_mean_square


def aggregate(
    old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor, *, multiple: Positive = 1.0
) -> tf.Tensor:
    """Return the mean of `old + (row - old) * min(1, multiple * median(d) / d)` over the clients that cover an entry.

    d is the root of the mean square of a client's update over the entries that it covers, and `median(d)` that of the
    cohort. For equal levels these are norms, up to a common factor.

    Args:
        multiple: longest update, as a multiple of the median.

    Reference: norm thresholding (Sun et al. 2019, arXiv 1911.07963), with the median as the scale of the threshold.
    """
    change = rows - old
    length = root_mean_square(change, covered)
    limit = multiple * middle_mean(length, (weight > 0)[:, None], 0.5)
    factor = tf.where(length > limit, limit / length, tf.ones([], length.dtype))
    return old + covered_mean(tf.math.multiply_no_nan(change, factor), entry_weights(covered, weight))
