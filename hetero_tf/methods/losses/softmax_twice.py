"""Cross-entropy of probabilities that are taken for logits: the softmax is applied twice."""

import tensorflow as tf

from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy

TARGETS = ("label",)
MASKS_LABELS = False


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
    """`log(sum over c of exp(p_c)) - p_y` of every example, p the softmax of the logits.

    It cannot fall below `log(e + classes - 1) - 1`, and its gradients are small. The model and the metrics use plain
    logits. Like `cross_entropy` it needs the full label axis.

    Reference: the public code of LG-FedAvg (Liang et al. 2020, arXiv 2001.01523), whose network for MNIST ends in a
    softmax and is trained by a loss that has one too.
    """
    # Not tf.nn.softmax: oneDNN's exponentials lose digits, see `cross_entropy`.
    exponentials = tf.exp(logits - tf.stop_gradient(tf.reduce_max(logits, -1, keepdims=True)))
    return softmax_cross_entropy(exponentials / tf.reduce_sum(exponentials, -1, keepdims=True), targets)
