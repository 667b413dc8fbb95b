"""Sum: every output learns the labels, all equally."""

import tensorflow as tf

READS_LOGITS = False


def couple(losses, logits, targets, round):
    """The sum of the losses of all outputs."""
    return tf.add_n(losses)
