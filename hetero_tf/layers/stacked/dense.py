"""StackedDense: the dense layers of K clients."""

import math

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import Stacked, client_axes, is_leading, leading_shape, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class StackedDense(Stacked, keras.layers.Dense):
    """`activation(inputs @ kernel + bias)` with one kernel and bias per client.

    Args:
        units: Number of outputs per client.
        activation, use_bias, kernel_initializer, bias_initializer: See `keras.layers.Dense`.

    Variables: kernel `(clients, channels, units)`, bias `(clients, 1, units)`.
    Input shape: channel form or leading form. Output shape: `(clients, batch, ..., units)`.
    """

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)
        channels = leading_shape(input_shape, self.clients)[-1]
        self._kernel = self.add_weight(
            shape=(self.clients, channels, self.units), initializer=self.kernel_initializer, name="kernel"
        )
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.clients, 1, self.units), initializer=self.bias_initializer, autocast=False, name="bias"
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = inputs if self.leading else to_leading(inputs, self.clients)
        # One matrix product of all rows of a client: einsum is slower, and broadcasting the kernel slower still.
        rows = inputs if inputs.shape.rank == 3 else tf.reshape(inputs, [self.clients, -1, inputs.shape[-1]])
        outputs = tf.matmul(rows, tf.convert_to_tensor(self.kernel))
        if self.use_bias:
            bias = tf.convert_to_tensor(self.bias)
            outputs = tf.cast(outputs, bias.dtype) + bias
        if rows is not inputs:
            outputs = tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        return self.activation(outputs)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*leading_shape(input_shape, self.clients)[:-1], self.units)


class _FloatBias(keras.layers.Layer):
    """Excludes the variable `bias` from Keras' cast to bfloat16."""

    def add_weight(self, *args, name=None, **kwargs):
        return super().add_weight(*args, name=name, autocast=name != "bias", **kwargs)


@keras.saving.register_keras_serializable("hetero_tf")
class MixedConv2D(_FloatBias, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with a float32 bias; outputs are float32 with a bias, bfloat16 without."""


@keras.saving.register_keras_serializable("hetero_tf")
class MixedDense(_FloatBias, keras.layers.Dense):
    """`keras.layers.Dense` with a float32 bias; outputs are float32 with a bias, bfloat16 without."""


@keras.saving.register_keras_serializable("hetero_tf")
class LowRank(keras.layers.Layer):
    """`scale * (inputs @ a) @ b`, for one client or for each of several.

    All ranks use one scale: the product is a sum over the columns of `a`, so a client with a smaller rank computes the
    first terms of the global sum. With alpha / rank of each client these terms would be larger at smaller ranks.

    Args:
        channels: Shape of one position of the inputs, such as (heads, head_width); the input axis is flat.
        outputs: Shape of one position of the outputs; the output axis is flat.
        rank: Columns of `a`, rows of `b`.

    Variables: a `(*channels, rank)`, uniform in +-1/sqrt(number of channels); b `(rank, *outputs)`, zeros, so a new
    adapter adds 0. With several clients a leading axis of clients.
    Input shape: `(..., channels)`, channel form or leading form. Output shape: `(..., outputs)`; with several clients
    a leading axis of clients.
    Reference: LoRA (Hu et al. 2021, arXiv 2106.09685), section 4.1.
    """

    def __init__(
        self, channels: tuple[int, ...], outputs: tuple[int, ...], rank: int, scale: float, clients: int = 1, **kwargs
    ):
        super().__init__(**kwargs)
        self.channels = channels
        self.outputs = outputs
        self.rank = rank
        self.scale = scale
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        one = client_axes(self.clients)
        self.in_channels = self.clients > 1 and not is_leading(input_shape, self.clients)
        bound = math.prod(self.channels) ** -0.5
        uniform = keras.initializers.RandomUniform(-bound, bound)
        self.a = self.add_weight(shape=(*one, *self.channels, self.rank), initializer=uniform, name="a")
        self.b = self.add_weight(shape=(*one, self.rank, *self.outputs), initializer="zeros", name="b")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = to_leading(inputs, self.clients) if self.in_channels else inputs
        lead = client_axes(self.clients)
        # One matrix product of all rows of a client, as in `StackedDense`.
        rows = tf.reshape(inputs, [*lead, -1, inputs.shape[-1]])
        a = tf.reshape(tf.convert_to_tensor(self.a), [*lead, -1, self.rank])
        b = tf.reshape(tf.convert_to_tensor(self.b), [*lead, self.rank, math.prod(self.outputs)])
        outputs = self.scale * tf.matmul(tf.matmul(rows, a), b)
        return tf.reshape(outputs, tf.concat([tf.shape(inputs)[:-1], [outputs.shape[-1]]], 0))
