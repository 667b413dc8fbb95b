"""StackedConv1D: the convolutions over time of K clients."""

import math

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import Stacked, is_leading, leading_shape, to_channels, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class StackedConv1D(Stacked, keras.layers.Conv1D):
    """`activation(convolution(inputs, kernel) + bias)` with one kernel and bias per client.

    All windows of a client are one matrix product. TensorFlow has no gradient of grouped convolutions with dilation,
    and in float64 of none.

    Args:
        filters: Output channels per client.
        kernel_size, strides, dilation_rate: Whole numbers, see `keras.layers.Conv1D`.
        padding, activation, use_bias, kernel_initializer, bias_initializer: See `keras.layers.Conv1D`.

    Variables: kernel `(clients, kernel_size, channels, filters)`, bias `(clients * filters,)`.
    Input shape: channel form or leading form. Output shape: channel form, `(batch, positions, clients * filters)`.
    """

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)
        *_, positions, channels = leading_shape(input_shape, self.clients)
        # Positions between the first and the last tap of a window.
        self.span = (self.kernel_size[0] - 1) * self.dilation_rate[0]
        self.windows = self.compute_output_shape(input_shape)[1]
        missing = max((self.windows - 1) * self.strides[0] + self.span + 1 - positions, 0)
        before = {"valid": 0, "same": missing // 2, "causal": self.span}[self.padding]
        self.border = [before, max(missing - before, 0)]
        self._kernel = self.add_weight(
            shape=(self.clients, *self.kernel_size, channels, self.filters),
            initializer=self.kernel_initializer,
            name="kernel",
        )
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.clients * self.filters,), initializer=self.bias_initializer, name="bias"
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = to_channels(inputs, self.clients) if self.leading else inputs
        padded, (stride,), (dilation,) = tf.pad(inputs, [[0, 0], self.border, [0, 0]]), self.strides, self.dilation_rate
        length, firsts = (self.windows - 1) * stride + 1, range(0, self.span + 1, dilation)
        taps = tf.stack([padded[:, first : first + length : stride] for first in firsts], 2)
        windows, kernel = to_leading(taps, self.clients), tf.convert_to_tensor(self.kernel)
        rows = tf.reshape(windows, [self.clients, -1, math.prod(windows.shape[-2:])])
        outputs = tf.matmul(rows, tf.reshape(kernel, [self.clients, -1, self.filters]))
        outputs = to_channels(tf.reshape(outputs, [self.clients, -1, self.windows, self.filters]), self.clients)
        return self.activation(outputs + tf.convert_to_tensor(self.bias) if self.use_bias else outputs)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        _, batch, positions, _ = leading_shape(input_shape, self.clients)
        span = (self.kernel_size[0] - 1) * self.dilation_rate[0] if self.padding == "valid" else 0
        return (batch, (positions - span - 1) // self.strides[0] + 1, self.clients * self.filters)


@keras.saving.register_keras_serializable("hetero_tf")
class StackedPooling1D(keras.layers.Layer):
    """Pools the positions of each client by a Keras layer, which treats every channel separately.

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
