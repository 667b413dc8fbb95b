"""Cross-entropy in which labels that are absent from the current batch of the client have logit zero."""

import tensorflow as tf

from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy

TARGETS = ("label", "label_map")
MASKS_LABELS = True


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor, outside: int) -> tf.Tensor:
    """`-z_y + log(sum over c in the batch of exp(z_c) + number of other classes)` of every example.

    A batch belongs to one client and one step. With `present` of shape [classes] all targets are one batch; with a
    leading axis each index of that axis is one. All targets of a client are among its labels, so labels that it lacks
    get no gradient either and may be cut.

    Reference: the public code of SplitMix (Hong et al., ICLR 2022); FeDepth's code has the same loss.
    """
    first = 0 if len(present.shape) == 1 else 1
    read = tf.one_hot(targets, logits.shape[-1], on_value=True, off_value=False)
    seen = tf.reduce_any(read, list(range(first, targets.shape.rank)), keepdims=True)
    return softmax_cross_entropy(logits, targets, tf.cast(seen, logits.dtype), outside)
