"""StackedLayerNormalization: the layer normalisations of K clients."""

import keras
import tensorflow as tf

from hetero_tf.base.written_gradient import written_gradient
from hetero_tf.layers.stacked.forms import is_leading, leading_shape


@written_gradient
def normalize(inputs: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Mean 0 and variance 1 over the last axis; the gradient written out has half the kernels of a derived one."""
    centred = inputs - tf.reduce_mean(inputs, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    outputs = centred * inverse

    def gradient(upstream):
        along = tf.reduce_mean(upstream * outputs, -1, keepdims=True)
        return (upstream - tf.reduce_mean(upstream, -1, keepdims=True) - outputs * along) * inverse

    return outputs, gradient


@keras.saving.register_keras_serializable("hetero_tf")
class StackedLayerNormalization(keras.layers.Layer):
    """Normalises each client's channels, with each client's own scale and offset.

    Args:
        clients: Clients computed at once.
        epsilon, center, scale: As `keras.layers.LayerNormalization` takes them.

    Variables: gamma and beta, `(clients, 1, ..., channels)` in leading form, `(clients * channels,)` in channel form.
    Input and output shape: either form of a stack.
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
        self.apart = shape if self.leading else (self.clients, channels)
        if self.scale:
            self.gamma = self.add_weight(shape=shape, initializer="ones", name="gamma")
        if self.center:
            self.beta = self.add_weight(shape=shape, initializer="zeros", name="beta")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.leading:
            return self._affine(normalize(inputs, epsilon=self.epsilon))
        apart = tf.reshape(inputs, tf.concat([tf.shape(inputs)[:-1], self.apart], 0))
        return tf.reshape(self._affine(normalize(apart, epsilon=self.epsilon)), tf.shape(inputs))

    def _affine(self, values):
        if self.scale:
            values = values * tf.reshape(tf.convert_to_tensor(self.gamma), self.apart)
        return values + tf.reshape(tf.convert_to_tensor(self.beta), self.apart) if self.center else values

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
