"""Limits of requests, checked in the graph, so that one request cannot exhaust the memory of a server."""

from collections.abc import Iterable

import keras
import numpy as np
import tensorflow as tf

# Entries of the largest tensor that a request may create; 1 GiB as float32.
LARGEST_TENSOR = 2**28
# Characters of all texts of a request whose subwords are searched.
MAX_CHARACTERS = 2**20


def assert_in_graph(tensor: tf.Tensor, condition: tf.Tensor, message: str, received: Iterable[tf.Tensor]) -> tf.Tensor:
    """Return the tensor; the graph raises an error before it is used if the condition is false.

    Args:
        message: States the allowed values; the error consists of it and of the values of `received`.
        received: Tensors that the condition was computed from.
    """
    with tf.control_dependencies([tf.debugging.Assert(condition, [f"{message} Received:", *received])]):
        return tf.identity(tensor)


def pad_if_empty(batch: tf.Tensor) -> tf.Tensor:
    """Return the batch, or one blank example if it is empty, since some kernels fail for empty batches."""
    shape = tf.shape(batch)
    missing = tf.cast(shape[:1] == 0, tf.int32)
    return tf.concat([batch, tf.zeros(tf.concat([missing, shape[1:]], 0), batch.dtype)], 0)


def max_examples(model: keras.Model, open_size: int) -> int:
    """Return the number of examples for which no layer's output exceeds `LARGEST_TENSOR` entries.

    Args:
        open_size: Size of the axes that may have any size.
    """
    shapes = [output.shape[1:] for layer in model.layers for output in tf.nest.flatten(layer.output)]
    widest = max(int(np.prod([open_size if size is None else size for size in shape])) for shape in shapes)
    return max(LARGEST_TENSOR // widest, 1)


def max_words(classes: int) -> int:
    """Return the largest number of words of a request, with padding: each takes one logit per class."""
    return LARGEST_TENSOR // max(classes, 4096)
