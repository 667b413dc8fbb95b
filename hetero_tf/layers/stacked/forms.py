"""The two layouts of the activations of several clients.

Channel form: `(batch, ..., clients * channels)`, client by client. Leading form: `(clients, batch, ..., channels)`.
"""

import math
from typing import Any

import keras
import tensorflow as tf


def is_leading(shape: tuple, clients: int) -> bool:
    """Return True if `shape` is the leading form. A single client has neither form."""
    return clients > 1 and len(shape) > 1 and shape[0] == clients


def leading_shape(shape: tuple, clients: int) -> tuple:
    """Return the leading form of a shape; `ValueError` if the channels are not divisible by the number of clients."""
    if is_leading(shape, clients):
        return tuple(shape)
    if shape[-1] is None or shape[-1] % clients:
        raise ValueError(f"the last axis must be divisible by {clients} clients. Received: shape={tuple(shape)}")
    return (clients, *shape[:-1], shape[-1] // clients)


def sum_axes(values: tf.Tensor, axis: tf.Tensor, rank: int) -> tf.Tensor:
    """Sum over one `axis` at a time, until `rank` axes remain: short sums lose far fewer digits than one long sum."""
    while values.shape.rank > rank:
        values = tf.reduce_sum(values, axis)
    return values


def to_leading(inputs: tf.Tensor, clients: int) -> tf.Tensor:
    """Convert channel form to leading form; all axes except the batch must be static."""
    rank = inputs.shape.rank
    by_client = tf.reshape(inputs, [-1, *inputs.shape[1:-1], clients, inputs.shape[-1] // clients])
    return tf.transpose(by_client, [rank - 1, *range(rank - 1), rank])


def to_channels(inputs: tf.Tensor, clients: int) -> tf.Tensor:
    """Convert leading form to channel form; all axes except the batch must be static."""
    rank = inputs.shape.rank
    transposed = tf.transpose(inputs, [*range(1, rank - 1), 0, rank - 1])
    return tf.reshape(transposed, [-1, *inputs.shape[2:-1], clients * inputs.shape[-1]])


def client_axes(clients: int, ones: int = 0) -> tuple[int, ...]:
    """Return the leading axes of a variable of several clients, then axes of size 1; none for a single client."""
    return () if clients == 1 else (clients, *[1] * ones)


def strided_map(shape: tuple, stride: int, channels: int) -> tuple:
    """Return the shape of a padded map with a stride, rounded up; unknown sizes stay unknown."""
    return (shape[0], *(None if size is None else -(-size // stride) for size in shape[1:3]), channels)


class SameShape(keras.layers.Layer):
    """A layer whose outputs have the shape of its inputs."""

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape


class Stacked(keras.layers.Layer):
    """A Keras layer for several clients; the variables of a subclass have values of all of them."""

    def __init__(self, *arguments: Any, clients: int, **options: Any):
        super().__init__(*arguments, **options)
        self.clients = clients

    def get_config(self) -> dict:
        return {**super().get_config(), "clients": self.clients}


class FloatInputs(keras.layers.Layer):
    """A layer that adds or multiplies its inputs: under a mixed policy they keep the float type of the weights."""

    HAS_PRODUCTS = True

    @property
    def input_dtype(self) -> str:
        """Float type of the inputs after Keras' cast."""
        return self.variable_dtype


@keras.saving.register_keras_serializable("hetero_tf")
class StackedFlatten(Stacked):
    """Flattens all axes after the batch, separately for each client.

    Input shape: channel form or leading form, static except for the batch. Output shape: `(clients, batch, values)`.
    """

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = inputs if self.leading else to_leading(inputs, self.clients)
        return tf.reshape(inputs, [self.clients, -1, math.prod(inputs.shape[2:])])

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        clients, batch, *sizes = leading_shape(input_shape, self.clients)
        return (clients, batch, math.prod(sizes))
