"""Cross-entropy in which labels that the client does not have get logit zero."""

import tensorflow as tf

from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy

TARGETS = ("label", "label_map")
MASKS_LABELS = True


def masked(logits: tf.Tensor, present: tf.Tensor | None) -> tf.Tensor:
    """Return the logits with zero (not minus infinity) for labels that are not `present`, as in the authors' code."""
    return tf.where(present, logits, tf.zeros([], logits.dtype))


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
    """`-z_y + log(sum over present c of exp(z_c) + number of absent classes)` of every example.

    Absent classes have logit 0, so they get no gradient and each adds exp(0) = 1 to the denominator. The `outside`
    classes that were cut are absent too. An absent target also has logit 0.

    Reference: HeteroFL (arXiv 2010.01264), section 3.3, with the authors' code's zero logit.
    """
    return softmax_cross_entropy(logits, targets, tf.cast(present, logits.dtype), outside)
