"""PostActivationBlock: the residual block of the original ResNet."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size
from hetero_tf.layers.norm import ConvolutionBlock, NormKind
from hetero_tf.layers.padded_conv2d import PaddedConv2D


@keras.saving.register_keras_serializable("hetero_tf")
class PostActivationBlock(ConvolutionBlock):
    """Two 3x3 convolutions, each followed by Scaler and norm, added to a shortcut; ReLU after the first and the sum.

    `relu(norm2(conv2(relu(norm1(conv1(x))))) + shortcut)`. The shortcut is x, or, if stride or channels change, a 1x1
    convolution of x with Scaler and norm. No convolution has a bias.

    Args:
        filters: Output channels.
        stride: Stride of the first convolution and of the shortcut.
        norm: Kind of `Norm`.
        scaler: Whether the Scalers are active.

    Input shape: `(batch, height, width, clients * channels)`. Output: `(batch, ceil(height / stride),
    ceil(width / stride), clients * filters)`.
    Reference: He et al. 2015 (arXiv 1512.03385), as in the public code of DepthFL and FjORD.
    """

    GEOMETRY = {
        "inputs": "map",
        "outputs": "(-(-rows // stride), -(-columns // stride), filters)",
        "weights": "(9 + (stride != 1 or channels != filters)) * channels * filters + 9 * filters**2",
        # Two convolutions, each with normalisation and activation, and the sum.
        "hidden": "4 * product(outputs)",
        "groups": "4 if norm == 'gn' else 1",
    }

    def __init__(
        self,
        filters: Size,
        stride: FixedSize = 1,
        norm: NormKind = "sbn",
        scaler: bool = True,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(filters, stride, norm, scaler, scale, clients, **kwargs)
        self.conv1, self.norm1 = self.convolution("conv1", filters, 3, stride), self.new_norm("norm1")
        self.conv2, self.norm2 = self.convolution("conv2", filters), self.new_norm("norm2")
        self.shortcut: PaddedConv2D | None = None

    def build(self, input_shape: tuple) -> None:
        hidden = self.compute_output_shape(input_shape)
        self.conv1.build(input_shape)
        for layer in (self.norm1, self.conv2, self.norm2):
            layer.build(hidden)
        if self.stride != 1 or input_shape[-1] != hidden[-1]:
            self.shortcut = self.convolution("shortcut", self.filters, 1, self.stride)
            self.norm3 = self.new_norm("norm3")
            self.shortcut.build(input_shape)
            self.norm3.build(hidden)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        hidden = tf.nn.relu(self.scaled_norm(self.norm1, self.conv1(inputs), training))
        shortcut = inputs
        if self.shortcut is not None:
            shortcut = self.scaled_norm(self.norm3, self.shortcut(inputs), training)
        return tf.nn.relu(self.scaled_norm(self.norm2, self.conv2(hidden), training) + shortcut)
