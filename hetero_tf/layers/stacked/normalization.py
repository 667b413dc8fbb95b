"""Normalisation of K clients: group norms and layer norms."""

import keras
import tensorflow as tf

from hetero_tf.base.written_gradient import written_gradient
from hetero_tf.layers.stacked.forms import Stacked, is_leading, leading_shape, sum_axes


@written_gradient
def normalize_groups(
    inputs: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, *, groups: int, epsilon: float
) -> tuple[tf.Tensor, ...]:
    """Normalise each example per group of consecutive channels; the explicit gradient needs half the kernels.

    Args:
        inputs: `(batch, ..., channels)`.
        gamma, beta: `(channels,)`.
        groups: Number of groups, a divisor of the channels.
        epsilon: Added to the variance.
    """
    channels = inputs.shape[-1]
    per_example = [-1, *[1] * (inputs.shape.rank - 2), channels]
    count = tf.cast(tf.reduce_prod(tf.shape(inputs)[1:]) // groups, inputs.dtype)

    def mean(totals):
        """Divide `(batch, channels)` sums by the size of a group, for every channel of the group."""
        if channels != groups:
            by_group = tf.reshape(totals, [-1, groups, channels // groups])
            totals = tf.broadcast_to(tf.reduce_sum(by_group, -1, keepdims=True), tf.shape(by_group))
        return tf.reshape(totals, [-1, channels]) / count

    axis = tf.constant(-2)
    centred = inputs - tf.reshape(mean(sum_axes(inputs, axis, 2)), per_example)
    inverse = tf.math.rsqrt(mean(sum_axes(tf.square(centred), axis, 2)) + epsilon)
    factor = tf.reshape(inverse * gamma, per_example)

    def gradient(upstream):
        # As in `static_batch_normalization`: a separate function would capture the forward constant as an input.
        axis = tf.constant(-2)
        for_beta, along = sum_axes(upstream, axis, 2), sum_axes(upstream * centred, axis, 2)
        offset = mean(for_beta * gamma) * inverse
        slope = mean(along * gamma) * inverse**3
        for_inputs = upstream * factor - centred * tf.reshape(slope, per_example) - tf.reshape(offset, per_example)
        return for_inputs, tf.reduce_sum(along * inverse, 0), tf.reduce_sum(for_beta, 0)

    return centred * factor + beta, gradient


@keras.saving.register_keras_serializable("hetero_tf")
class StackedGroupNormalization(Stacked, keras.layers.GroupNormalization):
    """Normalises groups of channels of each client; no group spans two clients.

    Args:
        groups: Number of groups per client; -1: one group per channel.
        arguments: Arguments of `keras.layers.GroupNormalization`, for the last axis.

    Variables: gamma and beta, `(clients * channels,)`.
    Input and output shape: channel form.
    """

    def __init__(self, groups: int = 32, *, clients: int, **arguments):
        super().__init__(groups if groups == -1 else groups * clients, clients=clients, **arguments)
        self.groups_per_client = groups

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        # As in Keras, low precision would overflow in the sum of squares.
        values = tf.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        channels = values.shape[-1:]
        gamma = tf.cast(self.gamma, values.dtype) if self.scale else tf.ones(channels, values.dtype)
        beta = tf.cast(self.beta, values.dtype) if self.center else tf.zeros(channels, values.dtype)
        return tf.cast(normalize_groups(values, gamma, beta, groups=self.groups, epsilon=self.epsilon), inputs.dtype)

    def get_config(self) -> dict:
        return {**super().get_config(), "groups": self.groups_per_client}


@written_gradient
def normalize_channels(inputs: tf.Tensor, *, epsilon: float) -> tf.Tensor:
    """Normalise to mean 0 and variance 1 over the last axis; the explicit gradient needs half the kernels."""
    centred = inputs - tf.reduce_mean(inputs, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
    outputs = centred * inverse

    def gradient(upstream):
        along = tf.reduce_mean(upstream * outputs, -1, keepdims=True)
        return (upstream - tf.reduce_mean(upstream, -1, keepdims=True) - outputs * along) * inverse

    return outputs, gradient


@keras.saving.register_keras_serializable("hetero_tf")
class StackedLayerNormalization(Stacked, keras.layers.LayerNormalization):
    """Normalises the channels of each client, with one scale and offset per client.

    Args:
        epsilon, center, scale: See `keras.layers.LayerNormalization`.

    Variables: gamma and beta, `(clients, 1, ..., channels)` in leading form, `(clients * channels,)` in channel form.
    Input and output shape: channel form or leading form.
    """

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
        # Keras' class turns the cast of inputs off.
        inputs = tf.cast(inputs, self.compute_dtype)
        if self.leading:
            return self._affine(normalize_channels(inputs, epsilon=self.epsilon))
        by_client = tf.reshape(inputs, tf.concat([tf.shape(inputs)[:-1], self.client_shape], 0))
        return tf.reshape(self._affine(normalize_channels(by_client, epsilon=self.epsilon)), tf.shape(inputs))

    def _affine(self, values):
        if self.scale:
            values = values * tf.reshape(tf.convert_to_tensor(self.gamma), self.client_shape)
        return values + tf.reshape(tf.convert_to_tensor(self.beta), self.client_shape) if self.center else values
