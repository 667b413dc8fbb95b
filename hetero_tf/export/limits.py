"""What a served model refuses, so that no single request can take the memory of its server."""

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

# Entries of the largest tensor that one request may ask for; 1 GiB as float32.
LARGEST_TENSOR = 2**28


def checked(tensor: tf.Tensor, condition: tf.Tensor, sentence: str, received: Iterable[tf.Tensor]) -> tf.Tensor:
    """The tensor itself, for a graph that stops with an error before it is used where the condition is false.

    Args:
        tensor: What the graph goes on with.
        condition: Scalar bool.
        sentence: What is allowed; the error ends in it and in the values of `received`.
        received: What the condition was asked of.
    """
    with tf.control_dependencies([tf.debugging.Assert(condition, [f"{sentence} Received:", *received])]):
        return tf.identity(tensor)


def filled(batch: tf.Tensor) -> tf.Tensor:
    """A batch itself, or one blank example where there is none: kernels give wrong shapes for nothing, or fail."""
    shape = tf.shape(batch)
    missing = tf.cast(shape[:1] == 0, tf.int32)
    return tf.concat([batch, tf.zeros(tf.concat([missing, shape[1:]], 0), batch.dtype)], 0)


def most_examples(model: keras.Model) -> int:
    """How many examples a request may hold: then no layer's output has more than `LARGEST_TENSOR` entries."""
    widest = max(int(np.prod(output.shape[1:])) for layer in model.layers for output in tf.nest.flatten(layer.output))
    return max(LARGEST_TENSOR // widest, 1)


def most_words(classes: int) -> int:
    """How many words, padding included, a request may hold: each takes a logit for every class, or as much inside."""
    return LARGEST_TENSOR // max(classes, 4096)
