"""Rows: the values of a client's variables one behind the other, K clients in a matrix [K, values].

What depends on the place of a value is computed from a few numbers of each variable: a constant as long as a row would
be copied into every version of the graph.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def narrowed(part: tf.Tensor, wide: tuple[int, ...], narrow: tuple[int, ...]) -> tf.Tensor:
    """Returns the first coordinates of a variable: [K, values] of shape `wide` to [K, values] of shape `narrow`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    if len(wide) == 1:
        return tf.slice(part, [0, 0], [-1, *narrow])
    whole = tf.reshape(part, [-1, *wide])
    return tf.reshape(tf.slice(whole, [0] * whole.shape.rank, [-1, *narrow]), [part.shape[0], math.prod(narrow)])


def widened(part: tf.Tensor, narrow: tuple[int, ...], wide: tuple[int, ...]) -> tf.Tensor:
    """Returns what `narrowed` gives, [K, values] of shape `narrow`, with zeros at all other coordinates of `wide`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    behind = [[0, 0], *([0, whole - first] for first, whole in zip(narrow, wide))]
    if len(wide) == 1:
        return tf.pad(part, behind)
    return tf.reshape(tf.pad(tf.reshape(part, [-1, *narrow]), behind), [part.shape[0], math.prod(wide)])


def spread(of_variables: np.ndarray, sizes: Sequence[int]) -> tf.Tensor:
    """Returns the numbers of variables, [..., variables], at each of their values, [..., values].

    Args:
        of_variables: The numbers.
        sizes: How many values each variable has.
    """
    # Neighbours with the same numbers are one broadcast. XLA would spend minutes on a gather by computed positions.
    blocks = [
        (np.array(numbers, of_variables.dtype), sum(sizes[position] for position in positions))
        for numbers, positions in itertools.groupby(range(len(sizes)), lambda one: of_variables[..., one].tolist())
    ]
    return tf.concat([tf.broadcast_to(numbers[..., None], [*numbers.shape, many]) for numbers, many in blocks], -1)
