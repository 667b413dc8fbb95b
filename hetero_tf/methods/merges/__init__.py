"""Merges: the new global weights of a round from the weights of each of its clients.

`aggregate(old, rows, covered, weight, *, options) -> [P]`. `old` [P] are the trainable global values before the round.
`rows` [K, P] are those values after local training, one row per client; the entries that a client lacks, or that are
not merged, have the old values. `covered`, bool [K, P], is True for the others. `weight` [K] is the weight of each
client, see `round.weighting`. Excluded clients and padding cover nothing and have the weight 0. The result must not
depend on the order of the rows.

The round replaces the result by the old values, bit by bit, in entries that no client covers, and passes it to
`round.server`. Running statistics are merged by their mean. A round stores K rows, and about as many while it merges;
only `mean`, the default, is computed from sums.

A merge also receives those of these keywords that its signature has without an annotation:

- `steps`, `examples`, `submodel`: int32 [K], the local steps of each client, the number of its training examples, and
  the index of its sub-model
- `loss`: [K], mean loss of these steps
- `rate`: a scalar, the learning rate of the round
- `momentum`, `mu`: floats, the momentum of `optimizer` and the weight of the proximal `client.correction`, or 0
- `blocks`: for the last block of each sub-model, but not of the deepest one, its columns among P, int [n]; the index of
  the next deeper sub-model; and the columns of that one's blocks of equal shapes from this one on, int [blocks, n]
"""

import numpy as np
import tensorflow as tf


def covered_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return the weighted mean of each column over the clients, [P]; 0 where all weights are 0.

    Args:
        values: [K, P] or [K, 1]; they may be infinite where the weight is 0.
        weights: [K, P].
    """
    return tf.math.divide_no_nan(tf.reduce_sum(tf.math.multiply_no_nan(values, weights), 0), tf.reduce_sum(weights, 0))


def entry_weights(covered: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Return the weight of each client for each entry, [K, P]; 0 where the client does not cover it."""
    return tf.where(covered, weight[:, None], tf.zeros([], weight.dtype))


def middle_mean(rows: tf.Tensor, covered: tf.Tensor, share: float) -> tf.Tensor:
    """Return the mean of each entry over the clients that cover it, without its smallest and its largest values, [P].

    Args:
        share: Share of the clients to leave out at either end, rounded up; one or two of them always remain. From 0.5
            on the result is the median.
    """
    ordered = tf.sort(tf.where(covered, rows, tf.constant(np.inf, rows.dtype)), axis=0)
    count = tf.math.count_nonzero(covered, axis=0, dtype=tf.int32)
    # In floats 0.1 * 10 is slightly above 1.
    cut = tf.cast(tf.math.ceil(share * tf.cast(count, tf.float64) - 1e-9), tf.int32)
    cut = tf.minimum(cut, tf.maximum(count - 1, 0) // 2)
    position = tf.range(tf.shape(rows)[0])[:, None]
    return covered_mean(ordered, tf.cast((position >= cut) & (position < count - cut), rows.dtype))


def root_mean_square(values: tf.Tensor, covered: tf.Tensor) -> tf.Tensor:
    """Return the root of the mean square of each client's values over the entries that it covers, [K, 1].

    It compares sub-models of any size: that of equal models is their norm times a constant.
    """
    squares = tf.where(covered, tf.square(values), tf.zeros([], values.dtype))
    count = tf.math.count_nonzero(covered, axis=1, keepdims=True, dtype=values.dtype)
    return tf.sqrt(tf.math.divide_no_nan(tf.reduce_sum(squares, 1, keepdims=True), count))
