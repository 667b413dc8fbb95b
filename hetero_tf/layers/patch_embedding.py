"""PatchEmbedding: an image as a sequence of tokens, one per square of pixels."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size
from hetero_tf.base.errors import InputError
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.stacked.forms import client_axes, to_leading


@keras.saving.register_keras_serializable("hetero_tf")
class PatchEmbedding(keras.layers.Layer):
    """`scaler([class token, projected patches] + positions)`.

    An image is cut into squares, row by row; one shared matrix projects each square to a token. The class token comes
    first. Every position has a trained offset.

    Args:
        patch: Side length of a square in pixels; height and width of the image must be multiples of it.
        width: Size of a token.

    The kernel, `(patch, patch, channels, width)`, starts uniform in +-1/sqrt(fan_in), its bias at zero, class token
    and positions normal with standard deviation 0.02.
    Input shape: `(batch, height, width, clients * channels)`. Output shape: `(batch, patches + 1, width)`; with
    several clients outputs and variables have a leading axis of clients.
    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929).
    """

    HAS_PRODUCTS = True
    GEOMETRY = {
        "inputs": "map",
        "outputs": "((rows // patch) * (columns // patch) + 1, width)",
        "weights": "patch**2 * channels * width + product(outputs)",
        "tile": "patch",
    }

    def __init__(self, patch: FixedSize, width: Size, scale: float = 1.0, clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.patch = patch
        self.width = width
        self.scale = scale
        self.clients = clients
        self.scaling = Scaler(scale, name="scaler", dtype=self.variable_dtype)

    def build(self, input_shape: tuple) -> None:
        patch, channels = self.patch, input_shape[-1] // self.clients
        if None in input_shape[1:3] or input_shape[1] % patch or input_shape[2] % patch:
            raise InputError(
                "height and width of the images must be multiples of `patch`. "
                f"Received: patch={patch}, height and width {tuple(input_shape[1:3])}"
            )
        one, each = client_axes(self.clients), client_axes(self.clients, 1)
        bound, normal = (patch**2 * channels) ** -0.5, keras.initializers.RandomNormal(stddev=0.02)
        uniform = keras.initializers.RandomUniform(-bound, bound)
        self.kernel = self.add_weight(
            shape=(*one, patch, patch, channels, self.width), initializer=uniform, name="kernel"
        )
        # Sums keep the float type of the weights under a mixed policy, so their terms are not cast.
        add = {"autocast": False}
        self.bias = self.add_weight(shape=(*each, self.width), initializer="zeros", name="bias", **add)
        self.token = self.add_weight(shape=(*each, 1, self.width), initializer=normal, name="token", **add)
        positions = self._patches(input_shape) + 1
        self.position_table = self.add_weight(
            shape=(*each, positions, self.width), initializer=normal, name="places", **add
        )

    def _patches(self, shape):
        """Return the number of squares of an image of this shape."""
        return (shape[1] // self.patch) * (shape[2] // self.patch)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        lead, patches = [] if self.clients == 1 else [self.clients], self._patches(inputs.shape)
        kernel = tf.convert_to_tensor(self.kernel)
        images = inputs if self.clients == 1 else to_leading(inputs, self.clients)
        height, width, channels = images.shape[-3:]
        squares = tf.reshape(images, [-1, height // self.patch, self.patch, width // self.patch, self.patch, channels])
        # [all clients' images, patches down, across, patch, patch, channels]
        squares = tf.transpose(squares, [0, 1, 3, 2, 4, 5])
        rows = tf.reshape(squares, [*lead, -1, inputs.shape[-1] // self.clients * self.patch**2])
        tokens = tf.matmul(rows, tf.reshape(kernel, [*lead, -1, self.width]))
        tokens = tf.cast(tokens, self.variable_dtype) + tf.convert_to_tensor(self.bias)
        tokens = tf.reshape(tokens, [*lead, -1, patches, self.width])
        # The class token is added to the first row of the position table; the tokens get a first row of zeros.
        token, positions = tf.convert_to_tensor(self.token), tf.convert_to_tensor(self.position_table)
        positions += tf.pad(token, _rows(token.shape.rank, 0, patches))
        return self.scaling(tf.pad(tokens, _rows(len(lead) + 3, 1, 0)) + positions, training=training)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*client_axes(self.clients), input_shape[0], self._patches(input_shape) + 1, self.width)


def _rows(rank, before, after):
    """Return the paddings that add rows to a tensor of this rank, on its second to last axis."""
    return [*[[0, 0]] * (rank - 2), [before, after], [0, 0]]
