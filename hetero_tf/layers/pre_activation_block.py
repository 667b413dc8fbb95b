"""PreActivationBlock: the residual block of PreResNet."""

from typing import Literal

import keras
import tensorflow as tf

from hetero_tf.base.constraints import FixedSize, Size
from hetero_tf.layers.norm import Norm, NormKind
from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.scaler import Scaler

Residual = Literal["input", "activated"]
ScalerPosition = Literal["norms", "products"]


@keras.saving.register_keras_serializable("hetero_tf")
class PreActivationBlock(keras.layers.Layer):
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

    Input shape: `(batch, height, width, clients * channels)`. Output: `(batch, height / stride, width / stride,
    clients * filters)`.
    Reference: He et al. 2016 (arXiv 1603.05027), as in the HeteroFL authors' code; `residual` activated as in the
    public code of FeDepth, `scaler_at` products as in that of SplitMix.
    """

    HAS_PRODUCTS = True
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
        residual: Residual = "input",
        scaler_at: ScalerPosition = "norms",
        scale: float = 1.0,
        clients: int = 1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride
        self.norm = norm
        self.scaler = scaler
        self.residual = residual
        self.scaler_at = scaler_at
        self.scale = scale
        self.clients = clients
        self.scaling = Scaler(scale, scaler, name="scaler", dtype=self.variable_dtype)
        self.norm1 = Norm(norm, clients, name="norm1", dtype=self.variable_dtype)
        self.norm2 = Norm(norm, clients, name="norm2", dtype=self.variable_dtype)
        common = {"use_bias": False, "clients": clients, "dtype": self.dtype_policy}
        self.conv1 = PaddedConv2D(filters, 3, stride, name="conv1", **common)
        self.conv2 = PaddedConv2D(filters, 3, name="conv2", **common)
        self.shortcut: PaddedConv2D | None = None

    @property
    def input_dtype(self) -> str:
        """Float type of the inputs after Keras' cast: sums with them keep the float type of the weights."""
        return self.variable_dtype

    def build(self, input_shape: tuple) -> None:
        self.norm1.build(input_shape)
        self.conv1.build(input_shape)
        hidden = self.conv1.compute_output_shape(input_shape)
        self.norm2.build(hidden)
        self.conv2.build(hidden)
        if self.stride != 1 or input_shape[-1] != hidden[-1]:
            self.shortcut = PaddedConv2D(
                self.filters,
                1,
                self.stride,
                use_bias=False,
                clients=self.clients,
                name="shortcut",
                dtype=self.dtype_policy,
            )
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
        return tf.cast(outputs, inputs.dtype) + tf.cast(shortcut, inputs.dtype)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return self.conv1.compute_output_shape(input_shape)
