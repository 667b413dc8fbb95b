"""Server SGD: a step from the old weights towards the merged ones."""

import tensorflow as tf


def apply(old, mean, covered, *, learning_rate: float = 1.0):
    """`old + learning_rate * (mean - old)` on covered entries.

    Args:
        learning_rate: share of the way to the merged weights; 0 changes nothing, 1 equals replace up to rounding.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), FedAvg as server SGD.
    """
    covered = tf.broadcast_to(covered, tf.shape(old))
    return tf.where(covered, old + learning_rate * (mean - old), old)
