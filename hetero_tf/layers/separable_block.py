"""SeparableBlock: the pair of separable convolutions in DepthFL's exits."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size
from hetero_tf.layers.norm import ConvolutionBlock, NormKind
from hetero_tf.layers.padded_depthwise_conv2d import PaddedDepthwiseConv2D


@keras.saving.register_keras_serializable("hetero_tf")
class SeparableBlock(ConvolutionBlock):
    """Two separable 3x3 convolutions, each followed by Scaler, norm and ReLU.

    A separable convolution is a 3x3 depthwise convolution and a 1x1 convolution. The first one has the stride and
    keeps the number of channels, the second one changes it. No convolution has a bias.

    Args:
        filters: Output channels.
        stride: Stride of the first convolution.
        norm: Kind of `Norm`.
        scaler: Whether the Scalers are active.

    Input shape: `(batch, height, width, clients * channels)`. Output: `(batch, ceil(height / stride),
    ceil(width / stride), clients * filters)`.
    Reference: DepthFL (Kim et al., ICLR 2023), as in the public code of its first author.
    """

    GEOMETRY = {
        "inputs": "map",
        "outputs": "(-(-rows // stride), -(-columns // stride), filters)",
        "weights": "channels * (channels + filters) + 18 * channels",
        "hidden": "4 * outputs[0] * outputs[1] * channels",
        "groups": "4 if norm == 'gn' else 1",
    }

    def __init__(
        self,
        filters: Size,
        stride: FixedSize = 2,
        norm: NormKind = "sbn",
        scaler: bool = True,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(filters, stride, norm, scaler, scale, clients, **kwargs)
        # Depthwise convolutions gain nothing from low precision.
        self.deep1 = PaddedDepthwiseConv2D(3, stride, name="deep1", dtype=self.variable_dtype)
        self.deep2 = PaddedDepthwiseConv2D(3, name="deep2", dtype=self.variable_dtype)
        self.norm1, self.norm2 = self.new_norm("norm1"), self.new_norm("norm2")

    def build(self, input_shape: tuple) -> None:
        self.mix1 = self.convolution("mix1", input_shape[-1] // self.clients, 1)
        self.mix2 = self.convolution("mix2", self.filters, 1)
        for layer in (self.deep1, self.mix1, self.norm1, self.deep2, self.mix2, self.norm2):
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        for deep, mix, norm in ((self.deep1, self.mix1, self.norm1), (self.deep2, self.mix2, self.norm2)):
            inputs = tf.nn.relu(self.scaled_norm(norm, mix(deep(inputs)), training))
        return inputs
