"""PreActivationBlock: the residual block of PreResNet."""

from typing import Literal

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size
from hetero_tf.layers.norm import ConvolutionBlock, NormKind
from hetero_tf.layers.padded_conv2d import PaddedConv2D

Residual = Literal["input", "activated"]
ScalerPosition = Literal["norms", "products"]


@keras.saving.register_keras_serializable("hetero_tf")
class PreActivationBlock(ConvolutionBlock):
    """Two 3x3 convolutions, each preceded by Scaler, norm and ReLU, added to a shortcut.

    `h = relu(norm1(scaler(x)))`; the shortcut is a 1x1 convolution of h if stride or channels change, else x;
    output = `conv2(relu(norm2(scaler(conv1(h))))) + shortcut`. No convolution has a bias. The sum is scaled by the
    first Scaler of the next block. With `scaler_at` products a Scaler follows every convolution instead, including
    that of the shortcut, and no Scaler precedes a norm.

    Args:
        filters: Output channels.
        stride: Stride of the first convolution and of the shortcut.
        norm: Kind of `Norm`.
        scaler: Whether the Scalers are active.
        residual: Shortcut without a convolution: input, x; activated, h.
        scaler_at: Position of the Scalers: norms, before each norm; products, after each convolution.
        step: Whether a learned scalar, at first 1, multiplies the second convolution before the sum.

    Input shape: `(batch, height, width, clients * channels)`. Output: `(batch, height / stride, width / stride,
    clients * filters)`.
    Reference: He et al. 2016 (arXiv 1603.05027), as in the HeteroFL authors' code; `residual` activated as in the
    public code of FeDepth, `scaler_at` products as in that of SplitMix, `step` as in NeFL (arXiv 2308.07761).
    """

    GEOMETRY = {
        "inputs": "map",
        "outputs": "(-(-rows // stride), -(-columns // stride), filters)",
        "weights": "(9 + (stride != 1 or channels != filters)) * channels * filters + 9 * filters**2 + step",
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
        residual: Residual = "input",
        scaler_at: ScalerPosition = "norms",
        step: bool = False,
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(filters, stride, norm, scaler, scale, clients, **kwargs)
        self.residual = residual
        self.scaler_at = scaler_at
        self.step = step
        self.norm1, self.norm2 = self.new_norm("norm1"), self.new_norm("norm2")
        self.conv1, self.conv2 = self.convolution("conv1", filters, 3, stride), self.convolution("conv2", filters)
        self.shortcut: PaddedConv2D | None = None

    def build(self, input_shape: tuple) -> None:
        hidden = self.compute_output_shape(input_shape)
        for layer, shape in ((self.norm1, input_shape), (self.conv1, input_shape), (self.norm2, hidden)):
            layer.build(shape)
        self.conv2.build(hidden)
        if self.step:
            self.step_size = self.add_weight(name="step_size", shape=(self.clients,), initializer="ones")
        if self.stride != 1 or input_shape[-1] != hidden[-1]:
            self.shortcut = self.convolution("shortcut", self.filters, 1, self.stride)
            self.shortcut.build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        def scaled(position, value):
            return self.scaling(value, training=training) if self.scaler_at == position else value

        def activate(norm, value):
            return tf.nn.relu(norm(scaled("norms", value), training=training))

        active = activate(self.norm1, inputs)
        shortcut = inputs if self.residual == "input" else active
        if self.shortcut is not None:
            shortcut = scaled("products", self.shortcut(active))
        hidden = scaled("products", self.conv1(active))
        outputs = scaled("products", self.conv2(activate(self.norm2, hidden)))
        if self.step:
            # [clients] -> [clients * filters]
            outputs *= tf.cast(tf.repeat(self.step_size, self.filters), outputs.dtype)
        return tf.cast(outputs, inputs.dtype) + tf.cast(shortcut, inputs.dtype)
