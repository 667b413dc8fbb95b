"""UNet: the encoder and decoder of U-Net, joined by skip connections."""

from typing import Annotated, Any

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Range, Size
from hetero_tf.layers.norm import ConvolutionBlock, NormKind
from hetero_tf.layers.stacked.forms import strided_map


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

        def pair(resolution, name, inputs=1):
            options = (self.filters * 2**resolution, norm, scaler, scale, clients)
            return _ConvolutionPair(inputs, *options, name=name, dtype=self.dtype_policy)

        self.encoders = [pair(index, f"encoder{index}") for index in range(depth + 1)]
        self.decoders = [pair(index, f"decoder{index}", inputs=2) for index in range(depth)]

    def build(self, input_shape: tuple) -> None:
        shapes: list[tuple] = []
        for encoder in self.encoders:
            shape = strided_map(shapes[-1], 2, shapes[-1][-1]) if shapes else input_shape
            encoder.build([shape])
            shapes.append(encoder.compute_output_shape(shape))
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


class _ConvolutionPair(ConvolutionBlock):
    """Two convolutions, each followed by Scaler, norm and ReLU; the first one reads a list of maps."""

    def __init__(self, inputs: int, filters: int, *options: Any, **kwargs: Any):
        super().__init__(filters, 1, *options, **kwargs)
        self.conv1 = [self.convolution(f"conv1_{index}", filters) for index in range(inputs)]
        self.norm1, self.norm2 = self.new_norm("norm1"), self.new_norm("norm2")
        self.conv2 = self.convolution("conv2", filters)

    def build(self, input_shape: list[tuple]) -> None:
        hidden = self.compute_output_shape(input_shape[0])
        for layer, shape in zip(self.conv1, input_shape, strict=True):
            layer.build(shape)
        for layer in (self.norm1, self.conv2, self.norm2):
            layer.build(hidden)

    def call(self, inputs: list[tf.Tensor], training: bool | None = False) -> tf.Tensor:
        products = [layer(value) for layer, value in zip(self.conv1, inputs, strict=True)]
        summed = products[0] if len(products) == 1 else tf.add_n(products)
        hidden = tf.nn.relu(self.scaled_norm(self.norm1, summed, training))
        return tf.nn.relu(self.scaled_norm(self.norm2, self.conv2(hidden), training))
