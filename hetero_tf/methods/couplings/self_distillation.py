"""Self-distillation: the main output learns the labels, the others what it predicts."""

import tensorflow as tf

from hetero_tf.methods.couplings.distillation import log_softmax, soft_cross_entropy, teacher

READS_LOGITS = True


def couple(losses: list[tf.Tensor], logits: list[tf.Tensor], targets: tf.Tensor, round: tf.Tensor) -> tf.Tensor:
    """`loss of the last output - sum over the others of sum over c of softmax(z_last)_c log softmax(z)_c`.

    Nothing flows back into z_last through the second part. Temperature and weight are 1, as there.

    Reference: FjORD (arXiv 2102.13451), the code of Flower's port.
    """
    *others, main = logits
    taught = teacher(log_softmax(main))
    return tf.add_n([losses[-1], *(soft_cross_entropy(taught, log_softmax(one)) for one in others)])
