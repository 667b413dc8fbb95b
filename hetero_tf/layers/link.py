"""Link: brings a map to the size of a deeper unit's output without parameters."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("hetero_tf")
class Link(keras.layers.Layer):
    """Keeps every n-th row and column, and puts equally many zero channels on both sides.

    It stands in for units that are left out, so that a shallow part of a model can be trained with the head of the
    whole one.

    Args:
        rows: Rows of the result; the stride is the input's rows divided by it.
        channels: Channels of the result, those of one client.
        clients: Clients computed at once, supplied by the model builder.

    Input shape: `(batch, height, width, clients * c)` with c <= channels and channels - c even. Output shape:
    `(batch, rows, width / stride, clients * channels)`.
    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), as in its authors' code.
    """

    def __init__(self, rows: int, channels: int, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.rows = rows
        self.channels = channels
        self.clients = clients

    def build(self, input_shape):
        height, added = input_shape[1], self.channels - input_shape[-1] // self.clients
        if height % self.rows or added < 0 or added % 2:
            raise ValueError("a link needs rows that divide the input's, and an even number of channels more than it "
                             f"has. Received: rows={self.rows}, channels={self.channels}, input {input_shape}")

    def call(self, inputs):
        stride = inputs.shape[1] // self.rows
        inputs = inputs[:, ::stride, ::stride]
        side = (self.channels - inputs.shape[-1] // self.clients) // 2
        space = tf.shape(inputs)[:3]
        apart = tf.reshape(inputs, tf.concat([space, [self.clients, inputs.shape[-1] // self.clients]], 0))
        padded = tf.pad(apart, [[0, 0]] * 4 + [[side, side]])
        return tf.reshape(padded, tf.concat([space, [self.clients * self.channels]], 0))

    def compute_output_shape(self, input_shape):
        stride = input_shape[1] // self.rows
        return (input_shape[0], self.rows, -(-input_shape[2] // stride), self.clients * self.channels)

    def get_config(self):
        return {**super().get_config(), "rows": self.rows, "channels": self.channels, "clients": self.clients}
