"""PositionEmbedding: a trained offset for each position, so that attention can distinguish positions."""

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import client_axes, leading_shape, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class PositionEmbedding(keras.layers.Layer):
    """`inputs + offsets` with one trained offset per position and channel.

    The offsets, `(positions, channels)`, start normal with standard deviation 0.02.
    Input and output shape: `(batch, positions, channels)`, positions known. With several clients outputs and offsets
    have a leading axis of clients, and inputs have the channel form or the leading form.
    Reference: Gehring et al. 2017 (arXiv 1705.03122).
    """

    GEOMETRY = {"inputs": "tokens", "outputs": "inputs", "weights": "product(inputs)"}

    def __init__(self, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.clients = clients

    def build(self, input_shape: tuple) -> None:
        *_, positions, channels = leading_shape(input_shape, self.clients)
        normal = keras.initializers.RandomNormal(stddev=0.02)
        self.offsets = self.add_weight(
            shape=(*client_axes(self.clients, 1), positions, channels), initializer=normal, name="offsets"
        )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        is_channel_form = self.clients > 1 and inputs.shape.rank == 3
        return (to_leading(inputs, self.clients) if is_channel_form else inputs) + tf.convert_to_tensor(self.offsets)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape if self.clients == 1 else leading_shape(input_shape, self.clients)
