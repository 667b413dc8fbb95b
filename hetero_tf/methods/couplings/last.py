"""Last: only the main output has a loss."""

import tensorflow as tf

READS_LOGITS = False


def couple(losses: list[tf.Tensor], logits: list[tf.Tensor], targets: tf.Tensor, round: tf.Tensor) -> tf.Tensor:
    """Return the loss of the last output; variables that only other outputs use get no gradient.

    Reference: InclusiveFL as DepthFL's authors run it, with `extended` off.
    """
    return losses[-1]
