"""Embedding: word embeddings and a mask of padding positions."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import CountOrZero, Size
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.stacked.forms import client_axes


@keras.saving.register_keras_serializable("hetero_tf")
class Embedding(keras.layers.Layer):
    """`scaler(row of the word)`; the word id `padding` masks positions for the layers after it.

    Args:
        words: Rows of the table: `!classes` if the labels are words, as in next-word prediction; else at least the
            size of the vocabulary.
        width: Size of an embedding.
        padding: Word id of padding, or None for no padding.

    The table starts uniform in +-0.05, as in Keras.
    Input shape: `(batch, positions)`, word ids in 0..words - 1. Output shape: `(batch, positions, width)`. With
    several clients inputs, outputs and table have a leading axis, `(clients, ...)`.
    """

    GEOMETRY = {"inputs": "words", "outputs": "(*inputs, width)", "weights": "words * width"}

    def __init__(
        self,
        words: Size,
        width: Size,
        padding: CountOrZero | None = None,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.words = words
        self.width = width
        self.padding = padding
        self.scale = scale
        self.clients = clients
        self.scaling = Scaler(scale, name="scaler", dtype=self.dtype_policy)

    def build(self, input_shape: tuple) -> None:
        uniform = keras.initializers.RandomUniform(-0.05, 0.05)
        self.table = self.add_weight(
            shape=(*client_axes(self.clients), self.words, self.width), initializer=uniform, name="table"
        )

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        rows = tf.gather(tf.convert_to_tensor(self.table), inputs, batch_dims=0 if self.clients == 1 else 1)
        return self.scaling(rows, training=training)

    def compute_mask(self, inputs: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor | None:
        """Return bool `(..., positions)`, False for padding, or None without a padding id."""
        return None if self.padding is None else keras.ops.not_equal(inputs, self.padding)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape, self.width)
