"""Cross-entropy in which labels that the client does not have count as logit zero."""

import math

import tensorflow as tf

MASKS_LABELS = True


def masked(logits, present):
    """Logits with zero (not minus infinity) for labels that are not `present`, as in the authors' code."""
    return tf.where(present, logits, tf.zeros([], logits.dtype))


def loss(logits, targets, present, outside):
    """Mean over the batch of `-z_y + log(sum over present c of exp(z_c) + number of absent classes)`.

    Absent classes have logit 0, hence no gradient and exp(0) = 1 each in the denominator. The `outside` classes
    that were cut away are absent too: one more column of log(outside) stands for all of them.

    Reference: HeteroFL (arXiv 2010.01264), section 3.3, with the authors' code's zero logit.
    """
    logits = masked(logits, present)
    if outside:
        column = tf.fill(tf.concat([tf.shape(logits)[:-1], [1]], 0), tf.constant(math.log(outside), logits.dtype))
        logits = tf.concat([logits, column], -1)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
