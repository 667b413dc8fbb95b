"""StackedFlatten: one vector per example of each of K clients."""

import math

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import is_leading, leading_shape, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class StackedFlatten(keras.layers.Layer):
    """Flattens all axes after the batch, separately for each client.

    Args:
        clients: Number of clients computed together.

    Input shape: channel form or leading form, static except for the batch. Output shape: `(clients, batch, values)`.
    """

    def __init__(self, clients: int, **kwargs):
        super().__init__(**kwargs)
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = inputs if self.leading else to_leading(inputs, self.clients)
        return tf.reshape(inputs, [self.clients, -1, math.prod(inputs.shape[2:])])

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        clients, batch, *sizes = leading_shape(input_shape, self.clients)
        return (clients, batch, math.prod(sizes))
