"""UNet: the encoder and decoder of U-Net, joined by skip connections."""

from typing import Annotated

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Range, Size
from hetero_tf.layers.norm import Norm, NormKind
from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.scaler import Scaler


@keras.saving.register_keras_serializable("hetero_tf")
class UNet(keras.layers.Layer):
    """Pairs of 3x3 convolutions at several resolutions, first downwards and then upwards.

    Resolution i, from 0 to `depth`, has `filters * 2**i` channels. 2x2 max pooling leads from one resolution to the
    next. On the way back, a map is enlarged by repetition, and the first convolution of a pair reads it and the
    encoder's map of the same size. Scaler, norm and ReLU follow every convolution; none has a bias.

    The convolution of two maps is the sum of one convolution for each, which equals a convolution of their
    concatenation. A concatenated axis could not be cut: the first channels of a narrow model would not be those of the
    wide one.

    Args:
        filters: Channels of the output and of the finest resolution.
        depth: Number of poolings, equal at every level.
        norm: Kind of `Norm`; with "gn" `filters` must be divisible by 4 at every level.
        scaler: Whether the Scalers are active.

    Input shape: `(batch, height, width, clients * channels)`. Output: `(batch, height, width, clients * filters)`.
    Reference: Ronneberger et al. 2015 (arXiv 1505.04597), with padding, norms, and repetition instead of transposed
    convolutions.
    """

    HAS_PRODUCTS = True
    GEOMETRY = {
        "inputs": "map",
        "outputs": "(rows, columns, filters)",
        "groups": "4 if norm == 'gn' else 1",
        "groups_inputs": False,
        # The pair of the input; then 13.5 * 4**i of resolution i > 0, and 36 * 4**i of a pair with two inputs.
        "weights": "9 * channels * filters + 9 * filters**2 + 30 * (4**depth - 1) * filters**2",
        # Convolution and norm of every pair, and the enlarged maps; resolution i has 1 / 2**i of the values.
        "hidden": "20 * product(outputs) - 16 * product(outputs) // 2**depth",
    }

    def __init__(
        self,
        filters: Size,
        depth: Annotated[int, Range(low=1, high=8)] = 2,
        norm: NormKind = "sbn",
        scaler: bool = True,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.depth = depth
        self.norm = norm
        self.scaler = scaler
        self.scale = scale
        self.clients = clients
        self.encoders = [self._pair(index, f"encoder{index}") for index in range(depth + 1)]
        self.decoders = [self._pair(index, f"decoder{index}", inputs=2) for index in range(depth)]

    def _pair(self, resolution, name, inputs=1):
        options = {"clients": self.clients, "name": name, "dtype": self.dtype_policy}
        scaling = Scaler(self.scale, self.scaler, name="scaler", dtype=self.variable_dtype)
        return _ConvolutionPair(self.filters * 2**resolution, inputs, self.norm, scaling, **options)

    def build(self, input_shape: tuple) -> None:
        shapes: list[tuple] = []
        for encoder in self.encoders:
            shape = _halved(shapes[-1]) if shapes else input_shape
            encoder.build([shape])
            shapes.append(encoder.compute_output_shape([shape]))
        for decoder, skip, below in zip(self.decoders, shapes, shapes[1:]):
            decoder.build([(*skip[:-1], below[-1]), skip])

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        maps: list[tf.Tensor] = []
        for encoder in self.encoders:
            finer = tf.nn.max_pool2d(maps[-1], 2, 2, "SAME") if maps else inputs
            maps.append(encoder([finer], training=training))
        outputs = maps.pop()
        for decoder in reversed(self.decoders):
            skip = maps.pop()
            # The last row or column of an odd size was pooled alone.
            enlarged = tf.repeat(tf.repeat(outputs, 2, axis=1), 2, axis=2)[:, : skip.shape[1], : skip.shape[2]]
            outputs = decoder([enlarged, skip], training=training)
        return outputs

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape[:-1], self.clients * self.filters)


class _ConvolutionPair(keras.layers.Layer):
    """Two convolutions, each followed by Scaler, norm and ReLU; the first one reads a list of maps.

    Args:
        filters: Output channels.
        norm: Kind of `Norm`.
        scaling: `Scaler` after both convolutions.
    """

    def __init__(self, filters: int, inputs: int, norm: NormKind, scaling: Scaler, clients: int, **kwargs):
        super().__init__(**kwargs)
        self.scaling = scaling
        common = {"use_bias": False, "clients": clients, "dtype": self.dtype_policy}
        self.conv1 = [PaddedConv2D(filters, name=f"conv1_{index}", **common) for index in range(inputs)]
        self.norm1 = Norm(norm, clients, name="norm1", dtype=self.variable_dtype)
        self.conv2 = PaddedConv2D(filters, name="conv2", **common)
        self.norm2 = Norm(norm, clients, name="norm2", dtype=self.variable_dtype)

    def build(self, input_shape: list[tuple]) -> None:
        hidden = self.compute_output_shape(input_shape)
        for layer, shape in zip(self.conv1, input_shape, strict=True):
            layer.build(shape)
        for layer in (self.norm1, self.conv2, self.norm2):
            layer.build(hidden)

    def call(self, inputs: list[tf.Tensor], training: bool | None = False) -> tf.Tensor:
        def activate(norm, value):
            return tf.nn.relu(norm(self.scaling(value, training=training), training=training))

        products = [layer(value) for layer, value in zip(self.conv1, inputs, strict=True)]
        hidden = activate(self.norm1, products[0] if len(products) == 1 else tf.add_n(products))
        return activate(self.norm2, self.conv2(hidden))

    def compute_output_shape(self, input_shape: list[tuple]) -> tuple:
        return self.conv1[0].compute_output_shape(input_shape[0])


def _halved(shape):
    """Return the shape of a map after pooling."""
    return (shape[0], *(None if size is None else -(-size // 2) for size in shape[1:3]), shape[3])
