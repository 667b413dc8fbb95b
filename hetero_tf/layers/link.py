"""Link: brings a map to the size of a deeper unit's output without parameters."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Size


@keras.saving.register_keras_serializable("hetero_tf")
class Link(keras.layers.Layer):
    """Keeps every n-th row and column, and puts zero channels on both sides, equally many or one more behind.

    It stands in for units that are left out, so that a shallow part of a model can be trained with the head of the
    whole one.

    Args:
        rows: Rows of the result; the stride is the smallest that leaves so many.
        channels: Channels of the result, those of one client.
        clients: Clients computed at once, supplied by the model builder.

    Input shape: `(batch, height, width, clients * c)` with c <= channels. Output shape: `(batch, rows,
    ceil(width / stride), clients * channels)`.
    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), as in its authors' code.
    """

    def __init__(self, rows: Size, channels: Size, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows
        self.channels = channels
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        channels, stride = input_shape[-1] // self.clients, self._stride(input_shape)
        if channels > self.channels or -(-input_shape[1] // stride) != self.rows:
            raise ValueError(
                "a link leads to at least as many channels, and to rows that a stride leaves. "
                f"Received: rows={self.rows}, channels={self.channels}, input {input_shape}"
            )

    def _stride(self, input_shape):
        return -(-input_shape[1] // self.rows)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        stride, channels = self._stride(inputs.shape), inputs.shape[-1] // self.clients
        inputs = inputs[:, ::stride, ::stride]
        before = (self.channels - channels) // 2
        space = tf.shape(inputs)[:3]
        apart = tf.reshape(inputs, tf.concat([space, [self.clients, channels]], 0))
        padded = tf.pad(apart, [[0, 0]] * 4 + [[before, self.channels - channels - before]])
        return tf.reshape(padded, tf.concat([space, [self.clients * self.channels]], 0))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        stride = self._stride(input_shape)
        return (input_shape[0], self.rows, -(-input_shape[2] // stride), self.clients * self.channels)
