"""StackedLayerNormalization: the layer norms of K clients."""

import keras
import tensorflow as tf

from hetero_tf.base.written_gradient import written_gradient
from hetero_tf.layers.stacked.forms import is_leading, leading_shape


@written_gradient
def normalize(inputs: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Normalise to mean 0 and variance 1 over the last axis; the explicit gradient needs half the kernels."""
    centred = inputs - tf.reduce_mean(inputs, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    outputs = centred * inverse

    def gradient(upstream):
        along = tf.reduce_mean(upstream * outputs, -1, keepdims=True)
        return (upstream - tf.reduce_mean(upstream, -1, keepdims=True) - outputs * along) * inverse

    return outputs, gradient


@keras.saving.register_keras_serializable("hetero_tf")
class StackedLayerNormalization(keras.layers.Layer):
    """Normalises the channels of each client, with one scale and offset per client.

    Args:
        epsilon, center, scale: See `keras.layers.LayerNormalization`.

    Variables: gamma and beta, `(clients, 1, ..., channels)` in leading form, `(clients * channels,)` in channel form.
    Input and output shape: channel form or leading form.
    """

    def __init__(self, clients: int, epsilon: float = 1e-3, center: bool = True, scale: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.clients = clients
        self.epsilon = epsilon
        self.center = center
        self.scale = scale

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)
        *outer, channels = leading_shape(input_shape, self.clients)
        shape = (self.clients, *[1] * (len(outer) - 1), channels) if self.leading else (self.clients * channels,)
        self.client_shape = shape if self.leading else (self.clients, channels)
        if self.scale:
            self.gamma = self.add_weight(shape=shape, initializer="ones", name="gamma")
        if self.center:
            self.beta = self.add_weight(shape=shape, initializer="zeros", name="beta")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.leading:
            return self._affine(normalize(inputs, epsilon=self.epsilon))
        by_client = tf.reshape(inputs, tf.concat([tf.shape(inputs)[:-1], self.client_shape], 0))
        return tf.reshape(self._affine(normalize(by_client, epsilon=self.epsilon)), tf.shape(inputs))

    def _affine(self, values):
        if self.scale:
            values = values * tf.reshape(tf.convert_to_tensor(self.gamma), self.client_shape)
        return values + tf.reshape(tf.convert_to_tensor(self.beta), self.client_shape) if self.center else values

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
