"""Cross-entropy over all classes, and the computation that the masked losses share with it."""

from typing import Literal

import numpy as np
import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.base.written_gradient import written_gradient

TARGETS = ("label", "label_map")
MASKS_LABELS = False


def loss(
    logits: tf.Tensor,
    targets: tf.Tensor,
    present: tf.Tensor | None,
    outside: int,
    *,
    label_smoothing: Share = 0.0,
    class_weights: Literal["none", "balanced"] = "none",
    class_shares=None,
) -> tf.Tensor:
    """Return the softmax cross-entropy of every example.

    It needs the full label axis, so `outside` is 0 and `present` is unused.

    Args:
        label_smoothing: share of the target's probability that is spread over all classes
        class_weights: weight of an example: none, 1; balanced, the mean number of training examples of a class divided
            by that of its class
        class_shares: Share of each class among the training examples, float `[classes]`.
    """
    shares = None if class_weights == "none" else class_shares
    return smoothed_cross_entropy(logits, targets, None, 0, label_smoothing, shares)


def smoothed_cross_entropy(
    logits: tf.Tensor,
    targets: tf.Tensor,
    mask: tf.Tensor | None,
    outside: int,
    label_smoothing: float,
    class_shares: np.ndarray | None,
    leaves_out: bool = False,
) -> tf.Tensor:
    """Return the cross-entropy of every example with smoothed labels and balanced class weights.

    Args:
        logits, targets, mask, outside: See `softmax_cross_entropy`.
        label_smoothing: Share of the target's probability that is spread over the classes of the mask.
        class_shares: Share of each class among the training examples, for balanced weights. If None, all have weight 1.
        leaves_out: Whether the classes outside the mask are not in the sum, instead of having logit 0.
    """
    if leaves_out and mask is not None:
        # Finite, since rows of padding may have any target; its exponential is 0.
        lowest = tf.constant(logits.dtype.min / 4, logits.dtype)
        losses = softmax_cross_entropy(tf.where(mask > 0, logits, lowest), targets)
    else:
        losses = softmax_cross_entropy(logits, targets, mask, outside)
    if label_smoothing:
        losses += label_smoothing * _target_margin(logits, targets, mask)
    return losses if class_shares is None else losses * balanced_weights(class_shares, targets, losses.dtype)


def _target_margin(logits, targets, mask):
    """Return the target's logit minus the mean logit of the classes of the mask."""
    mask = tf.ones_like(logits) if mask is None else tf.broadcast_to(mask, tf.shape(logits))
    masked = logits * mask
    target_logits = tf.gather(masked, targets[..., None], batch_dims=targets.shape.rank)[..., 0]
    return target_logits - tf.reduce_sum(masked, -1) / tf.reduce_sum(mask, -1)


def balanced_weights(class_shares: np.ndarray, targets: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Return the weight of every example, inversely proportional to the share of its class, in the shape of targets.

    As `sklearn.utils.class_weight.compute_class_weight("balanced")`; a class without examples has weight 0.
    """
    weights = np.divide(1, len(class_shares) * class_shares, where=class_shares > 0, out=np.zeros(len(class_shares)))
    return tf.gather(tf.constant(weights, dtype), targets)


def softmax_cross_entropy(
    logits: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor | None = None, outside: int = 0
) -> tf.Tensor:
    """`log(sum over c of exp(z_c) + outside) - z_target` with z = logits * mask.

    Args:
        logits: [..., classes], the last axis static.
        targets: int32 [...], or int64.
        mask: 0 and 1 in the type of the logits, broadcastable to them; None is 1 everywhere.
        outside: Number of classes with logit 0 that are not on the axis, a Python int.

    Returns:
        The loss of every example, in the shape of `targets`. NaN if a logit of the example is NaN. The gradient is
        written out: on long axes it takes a third of the time of TensorFlow's kernel. It has no second derivative.
    """
    return _cross_entropy(logits, targets=targets, mask=mask, outside=outside)


@written_gradient
def _cross_entropy(logits, *, targets, mask, outside):
    masked = logits if mask is None else logits * mask
    highest = tf.reduce_max(masked, -1, keepdims=True)
    highest = tf.maximum(highest, 0) if outside else highest
    # Not tf.nn.softmax: oneDNN's exponentials lose digits that a small ResNet amplifies to 6e-3 in its logits.
    exponentials = tf.exp(masked - highest)
    total = tf.reduce_sum(exponentials, -1, keepdims=True)
    total = total + outside * tf.exp(-highest) if outside else total
    target_logits = tf.gather(masked, targets[..., None], batch_dims=targets.shape.rank)

    def gradient(upstream):
        slope = exponentials / total - tf.one_hot(targets, logits.shape[-1], dtype=logits.dtype)
        upstream = upstream[..., None]
        return slope * (upstream if mask is None else upstream * mask)

    return tf.squeeze(tf.math.log(total) + (highest - target_logits), -1), gradient
