"""StackedPooling1D: pooling over the time of K clients."""

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import is_leading


@keras.saving.register_keras_serializable("hetero_tf")
class StackedPooling1D(keras.layers.Layer):
    """Pools the positions of each client by a Keras layer, which treats every channel separately.

    Args:
        pooling: The Keras layer.
        clients: Number of clients computed together.

    Input and output shape: channel form or leading form.
    """

    def __init__(self, pooling: keras.layers.Layer, clients: int, **kwargs):
        super().__init__(**kwargs)
        self.pooling = pooling
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if not self.leading:
            return self.pooling(inputs)
        pooled = self.pooling(tf.reshape(inputs, [-1, *inputs.shape[2:]]))
        return tf.reshape(pooled, [self.clients, -1, *pooled.shape[1:]])

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        if not is_leading(input_shape, self.clients):
            return self.pooling.compute_output_shape(input_shape)
        return (self.clients, *self.pooling.compute_output_shape(tuple(input_shape[1:])))


def pooling_1d(kind: str, *, clients: int, name: str | None = None, dtype=None, **arguments) -> StackedPooling1D:
    """Return the Keras layer `kind`, such as "MaxPooling1D", for several clients; it accepts the Keras arguments."""
    pooling = getattr(keras.layers, kind)(dtype=dtype, **arguments)
    return StackedPooling1D(pooling, clients, name=name, dtype=dtype)
