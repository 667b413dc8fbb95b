"""MaskedTokenEmbedding: token and position embeddings with a row for the mask token."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Share, Size
from hetero_tf.layers.dropout import Dropout
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.layers.stacked.forms import client_axes


@keras.saving.register_keras_serializable("hetero_tf")
class MaskedTokenEmbedding(keras.layers.Layer):
    """`dropout(norm(scaler(token row) + scaler(position row)))`; id `classes` is the mask token.

    Args:
        classes: Size of the vocabulary; the table has one more row.
        positions: Maximum sequence length.
        width: Size of an embedding.
        dropout: Share of activations set to zero in training.

    Both tables start standard normal and are not tied to the output layer; layer norm has epsilon 1e-5.
    Input shape: `(batch, positions)`, integer ids in 0..classes. Output shape: `(batch, positions, width)`. With
    several clients both have a leading axis of clients; the tables are `(clients, ...)` and `(clients, 1, ...)`.
    Reference: HeteroFL (arXiv 2010.01264), as in the authors' code.
    """

    GEOMETRY = {"inputs": "words", "outputs": "(*inputs, width)", "weights": "(classes + 1 + positions) * width"}

    def __init__(
        self,
        classes: Size,
        positions: Size,
        width: Size,
        dropout: Share = 0.0,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.classes = classes
        self.positions = positions
        self.width = width
        self.dropout = dropout
        self.scale = scale
        self.clients = clients
        policy = {"dtype": self.dtype_policy}
        self.scaling = Scaler(scale, name="scaler", **policy)
        self.norm = keras_layer("LayerNormalization", clients)(epsilon=1e-5, name="norm", **policy)
        self.drop = Dropout(dropout, clients, name="dropout", **policy)

    def build(self, input_shape: tuple) -> None:
        def table(name, *shape):
            normal = keras.initializers.RandomNormal(stddev=1.0)
            return self.add_weight(shape=shape, initializer=normal, name=name)

        self.tokens = table("tokens", *client_axes(self.clients), self.classes + 1, self.width)
        self.position_table = table("places", *client_axes(self.clients, 1), self.positions, self.width)
        self.norm.build((*input_shape, self.width))
        self.drop.build((*input_shape, self.width))

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        tokens = tf.gather(tf.convert_to_tensor(self.tokens), inputs, batch_dims=0 if self.clients == 1 else 1)
        position_table, length = tf.convert_to_tensor(self.position_table), tf.shape(inputs)[-1]
        # Converters to other runtimes do not support an ellipsis.
        positions = position_table[:length] if self.clients == 1 else position_table[..., :length, :]
        summed = self.scaling(tokens, training=training) + self.scaling(positions, training=training)
        return self.drop(self.norm(summed), training=training)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape, self.width)
