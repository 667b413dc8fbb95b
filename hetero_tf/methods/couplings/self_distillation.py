"""Self-distillation: the main output learns from the labels, the others from its predictions."""

import tensorflow as tf

from hetero_tf.methods.couplings import log_softmax, soft_cross_entropy, teacher

READS_LOGITS = True


def couple(losses: list[tf.Tensor], logits: list[tf.Tensor], targets: tf.Tensor, round: tf.Tensor) -> tf.Tensor:
    """`loss of the last output - sum over the others of sum over c of softmax(z_last)_c log softmax(z)_c`.

    The second term gives z_last no gradient. Temperature and weight are 1, as in the reference.

    Reference: FjORD (arXiv 2102.13451), the code of Flower's port.
    """
    *others, main = logits
    taught = teacher(log_softmax(main))
    return tf.add_n([losses[-1], *(soft_cross_entropy(taught, log_softmax(one)) for one in others)])
