"""Mean over the clients that cover an entry."""

import tensorflow as tf


def merge(old, total, coverage):
    """`total / coverage` where somebody covers the entry, else the old value.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1 as in the authors' code.
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old))
    return tf.where(covered, tf.math.divide_no_nan(total, coverage), old)
