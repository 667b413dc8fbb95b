"""StackedDense: the dense layers of K clients."""

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import is_leading, leading_shape, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class StackedDense(keras.layers.Layer):
    """`activation(inputs @ kernel + bias)` with one kernel and bias per client.

    Args:
        units: Number of outputs per client.
        clients: Number of clients computed together.
        activation, use_bias, kernel_initializer, bias_initializer: See `keras.layers.Dense`.

    Variables: kernel `(clients, channels, units)`, bias `(clients, 1, units)`.
    Input shape: channel form or leading form. Output shape: `(clients, batch, ..., units)`.
    """

    def __init__(
        self,
        units: int,
        clients: int,
        activation=None,
        use_bias: bool = True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = units
        self.clients = clients
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: tuple) -> None:
        self.leading = is_leading(input_shape, self.clients)
        channels = leading_shape(input_shape, self.clients)[-1]
        self.kernel = self.add_weight(
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
