"""AttentionGate: the attention branch at the start of DepthFL's exits."""

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.layers.norm import Norm, NormKind
from hetero_tf.layers.separable_block import SeparableBlock
from hetero_tf.layers.stacked.forms import FloatInputs, SameShape


def doubling(size: int) -> np.ndarray:
    """Return the matrix of bilinear upsampling by 2 to `size` values, `[size, ceil(size / 2)]` in float64.

    Values are located at pixel centres; beyond the outer centres the outer value is repeated. With an odd size the
    last upsampled value is dropped.
    """
    half, rows = -(-size // 2), np.arange(size)
    position = np.maximum((rows + 0.5) / 2 - 0.5, 0)
    below = position.astype(int)
    matrix = np.zeros((size, half))
    np.add.at(matrix, (rows, below), 1 - (position - below))
    np.add.at(matrix, (rows, np.minimum(below + 1, half - 1)), position - below)
    return matrix


@keras.saving.register_keras_serializable("hetero_tf")
class AttentionGate(SameShape, FloatInputs):
    """Multiplies a feature map by weights in [0.5, 1) that are computed from it at half resolution.

    `x * sigmoid(enlarge(relu(norm(separable(x)))))` with a `SeparableBlock` of stride 2 that keeps the number of
    channels, and bilinear upsampling by 2.

    Args:
        norm: Kind of `Norm`.
        scaler: Whether the Scalers are active.

    Input and output shape: `(batch, height, width, clients * channels)`, height and width known.
    Reference: DepthFL (Kim et al., ICLR 2023), as in the public code of its first author.
    """

    GEOMETRY = {
        "inputs": "map",
        "outputs": "inputs",
        "weights": "2 * channels**2 + 18 * channels",
        "groups": "4 if norm == 'gn' else 1",
    }

    def __init__(self, norm: NormKind = "sbn", scaler: bool = True, scale: float = 1.0, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.norm = norm
        self.scaler = scaler
        self.scale = scale
        self.clients = clients
        self.norm3 = Norm(norm, clients, name="norm3", dtype=self.variable_dtype)

    def build(self, input_shape: tuple) -> None:
        if None in input_shape[1:3]:
            raise ValueError(
                f"AttentionGate needs inputs of static height and width. Received: shape={tuple(input_shape)}"
            )
        options = (input_shape[-1] // self.clients, 2, self.norm, self.scaler, self.scale, self.clients)
        self.separable = SeparableBlock(*options, name="separable", dtype=self.dtype_policy)
        self.separable.build(input_shape)
        self.norm3.build(self.separable.compute_output_shape(input_shape))

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        small = self.separable(inputs, training=training)
        small = tf.nn.relu(self.norm3(small, training=training))
        # Two small products upsample rows, then columns: tf.image.resize gives float32 for float64.
        rows, columns = (tf.constant(doubling(size), small.dtype) for size in inputs.shape[1:3])
        half, channels = small.shape[2:]
        tall = tf.matmul(rows, tf.reshape(small, [-1, small.shape[1], half * channels]))
        return inputs * tf.sigmoid(tf.matmul(columns, tf.reshape(tall, [-1, inputs.shape[1], half, channels])))
