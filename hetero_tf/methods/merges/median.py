"""Median: the coordinate-wise median over the clients that cover an entry."""

import tensorflow as tf

from hetero_tf.methods.merges import middle_mean

CONFLICTS = {"each client counts once": {"round.weighting": "samples"}}


def aggregate(old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Return the middle value of each entry, or the mean of the two middle ones.

    It tolerates poisoned values of less than half of the clients that cover an entry. An entry that one or two clients
    cover has no protection.

    Reference: Yin et al. 2018 (arXiv 1803.01498), option I, entry by entry.
    """
    return middle_mean(rows, covered, 0.5)
