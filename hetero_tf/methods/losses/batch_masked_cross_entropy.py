"""Cross-entropy in which labels that do not occur in the client's present batch count as logit zero."""

import tensorflow as tf

from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy

MASKS_LABELS = True


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor, outside: int) -> tf.Tensor:
    """`-z_y + log(sum over c in the batch of exp(z_c) + number of other classes)` of every example.

    A batch is what one client reads in a step: everything where `present` is [classes], one place of the leading axis
    each where it has such an axis. All of a client's targets are labels that it has, so labels that it lacks get no
    gradient either and may be cut away.

    Reference: the public code of SplitMix (Hong et al., ICLR 2022), which FeDepth's has too.
    """
    first = 0 if len(present.shape) == 1 else 1
    read = tf.one_hot(targets, logits.shape[-1], on_value=True, off_value=False)
    seen = tf.reduce_any(read, list(range(first, targets.shape.rank)), keepdims=True)
    return softmax_cross_entropy(logits, targets, tf.cast(seen, logits.dtype), outside)
