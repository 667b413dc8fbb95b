"""Norm: a normalisation selected by one argument, for ablations."""

from typing import Any, Literal

import keras
import tensorflow as tf

from hetero_tf.layers.padded_conv2d import PaddedConv2D
from hetero_tf.layers.scaler import Scaler
from hetero_tf.layers.stacked import keras_layer
from hetero_tf.layers.stacked.forms import FloatInputs, SameShape, strided_map
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.layers.tracked_batch_normalization import TrackedBatchNormalization

NormKind = Literal["sbn", "bn", "wbn", "in", "gn", "ln", "none"]
TRACKED = {"bn": False, "wbn": True}
GROUPS = {"in": -1, "gn": 4, "ln": 1}


@keras.saving.register_keras_serializable("hetero_tf")
class Norm(SameShape):
    """One of the normalisations compared by HeteroFL, or the tracked one, with scale and offset per channel.

    Args:
        kind: "sbn" static batch normalisation; "bn" tracked batch normalisation, with running averages; "wbn" the same
            with separate running averages per width; "in" instance (one group per channel); "gn" four groups, so the
            channels of every level must be divisible by 4; "ln" one group over space and channels; "none" identity.
        clients: Number of clients computed together, supplied by the model builder; no group spans several clients.

    Input and output shape: `(batch, height, width, clients * channels)`.
    Reference: HeteroFL (arXiv 2010.01264), tables 4 and 5; epsilon 1e-5 as in the authors' code.
    """

    GEOMETRY = {"outputs": "inputs", "groups": "4 if kind == 'gn' else 1"}

    def __init__(self, kind: NormKind = "sbn", clients: int = 1, **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.clients = clients
        self.norm = None
        if kind == "sbn":
            self.norm = StaticBatchNormalization(dtype=self.dtype_policy, name=kind)
        elif kind in TRACKED:
            self.norm = TrackedBatchNormalization(
                apart=TRACKED[kind], clients=clients, dtype=self.dtype_policy, name=kind
            )
        elif kind != "none":
            self.norm = keras_layer("GroupNormalization", clients)(
                groups=GROUPS[kind], epsilon=1e-5, dtype=self.dtype_policy, name=kind
            )

    def build(self, input_shape: tuple) -> None:
        if self.norm is not None:
            self.norm.build(input_shape)

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        if self.norm is None:
            return inputs
        return self.norm(inputs, training=training)


class ConvolutionBlock(FloatInputs):
    """Base of blocks of convolutions without biases, each with the same Scaler and a norm.

    Args:
        filters: Output channels.
        stride: Factor by which height and width of the outputs are smaller than those of the inputs.
        norm: Kind of `Norm`.
        scaler: Whether the Scalers are active.
    """

    def __init__(
        self, filters: int, stride: int, norm: NormKind, scaler: bool, scale: float, clients: int, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.stride = stride
        self.norm = norm
        self.scaler = scaler
        self.scale = scale
        self.clients = clients
        self.scaling = Scaler(scale, scaler, name="scaler", dtype=self.variable_dtype)

    def convolution(self, name: str, filters: int, size: int = 3, stride: int = 1) -> PaddedConv2D:
        """Return a new convolution."""
        options = {"use_bias": False, "clients": self.clients, "name": name, "dtype": self.dtype_policy}
        return PaddedConv2D(filters, size, stride, **options)

    def new_norm(self, name: str) -> Norm:
        """Return a new norm."""
        return Norm(self.norm, self.clients, name=name, dtype=self.variable_dtype)

    def scaled_norm(self, norm: Norm, value: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Apply the Scaler and a norm."""
        return norm(self.scaling(value, training=training), training=training)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return strided_map(input_shape, self.stride, self.clients * self.filters)
