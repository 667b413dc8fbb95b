"""Cross-entropy of independent labels, in which labels that the client does not have get logit zero."""

import tensorflow as tf

from hetero_tf.methods.losses import sigmoid_cross_entropy
from hetero_tf.methods.losses.masked_cross_entropy import masked

TARGETS = ("label_set",)
MASKS_LABELS = True


def loss(logits: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
    """Return the mean binary cross-entropy over all labels, of every example.

    A label without an example on the client gets no gradient and adds log 2, the analogue of the masked cross-entropy
    of HeteroFL (arXiv 2010.01264, section 3.3). The client may not have annotated it.
    """
    return sigmoid_cross_entropy.loss(masked(logits, present), targets, present, outside)
