"""Mean: the weighted mean over the clients that cover an entry (HeteroFL, FedAvg)."""

import tensorflow as tf

from hetero_tf.methods.merges import covered_mean, entry_weights


def aggregate(old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """`sum(weight * row) / sum(weight)` over the clients that cover an entry.

    A round with this merge stores no rows: it adds up the clients instead, with the same result up to rounding.

    Reference: HeteroFL (Diao et al. 2021, arXiv 2010.01264), equations 2 to 6.
    """
    return covered_mean(rows, entry_weights(covered, weight))
