"""Link: resizes a feature map to the output size of a deeper unit, without parameters."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Size


@keras.saving.register_keras_serializable("hetero_tf")
class Link(keras.layers.Layer):
    """Selects every n-th row and column and pads zero channels on both sides, evenly or one more at the end.

    It replaces skipped units, so that a shallow part of a model can be trained with the head of the full model.

    Args:
        rows: Rows of the output; the stride is the smallest that gives this number.
        channels: Channels of the output, per client.

    Input shape: `(batch, height, width, clients * c)` with c <= channels. Output shape: `(batch, rows,
    ceil(width / stride), clients * channels)`.
    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), as in its authors' code.
    """

    GEOMETRY = {"inputs": "map", "outputs": "(rows, -(-inputs[1] // -(-inputs[0] // rows)), channels)"}

    def __init__(self, rows: Size, channels: Size, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows
        self.channels = channels
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        channels, stride = input_shape[-1] // self.clients, self._stride(input_shape)
        if channels > self.channels or -(-input_shape[1] // stride) != self.rows:
            raise ValueError(
                "Link needs at least as many output channels as input channels, and a number of rows that some stride "
                f"gives. Received: rows={self.rows}, channels={self.channels}, input {input_shape}"
            )

    def _stride(self, input_shape):
        return -(-input_shape[1] // self.rows)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        stride, channels = self._stride(inputs.shape), inputs.shape[-1] // self.clients
        inputs = inputs[:, ::stride, ::stride]
        before = (self.channels - channels) // 2
        space = tf.shape(inputs)[:3]
        by_client = tf.reshape(inputs, tf.concat([space, [self.clients, channels]], 0))
        padded = tf.pad(by_client, [[0, 0]] * 4 + [[before, self.channels - channels - before]])
        return tf.reshape(padded, tf.concat([space, [self.clients * self.channels]], 0))

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        stride = self._stride(input_shape)
        return (input_shape[0], self.rows, -(-input_shape[2] // stride), self.clients * self.channels)
