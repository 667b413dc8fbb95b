"""None: local steps follow the gradient of the loss alone."""

import tensorflow as tf

REMEMBERS = False


def correct(weights, start, memory):
    """Zeros."""
    return tf.zeros_like(weights)
