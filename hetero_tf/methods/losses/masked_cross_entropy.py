"""Cross-entropy in which labels that the client does not have get logit zero, or are left out."""

from typing import Literal

import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.methods.losses.cross_entropy import smoothed_cross_entropy

TARGETS = ("label", "label_map")
MASKS_LABELS = True


def masked(logits: tf.Tensor, present: tf.Tensor | None) -> tf.Tensor:
    """Return the logits with zero (not minus infinity) for labels that are not `present`, as in the authors' code."""
    return tf.where(present, logits, tf.zeros([], logits.dtype))


def loss(
    logits: tf.Tensor,
    targets: tf.Tensor,
    present: tf.Tensor | None,
    outside: int,
    *,
    absent: Literal["zero", "left_out"] = "zero",
    label_smoothing: Share = 0.0,
    class_weights: Literal["none", "balanced"] = "none",
    class_shares=None,
) -> tf.Tensor:
    """`-z_y + log(sum over present c of exp(z_c) + number of absent classes)` of every example.

    Absent classes have logit 0, so they get no gradient and each adds exp(0) = 1 to the denominator. The `outside`
    classes that were cut are absent too. An absent target also has logit 0.

    Args:
        absent: logit of the labels that the client does not have: zero, as in the authors' code; left_out, minus
            infinity, so that the sum is over the present labels alone
        label_smoothing: share of the target's probability that is spread over the classes of the client
        class_weights: weight of an example: none, 1; balanced, the mean number of training examples of a class divided
            by that of its class
        class_shares: Share of each class among the training examples, float `[classes]`.

    Reference: HeteroFL (arXiv 2010.01264), section 3.3, with the authors' code's zero logit.
    """
    shares = None if class_weights == "none" else class_shares
    mask = tf.cast(present, logits.dtype)
    return smoothed_cross_entropy(logits, targets, mask, outside, label_smoothing, shares, absent == "left_out")
