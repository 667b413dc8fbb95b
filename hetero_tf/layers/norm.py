"""Norm: a normalisation selected by one argument, for ablations."""

from typing import Literal

import keras
import tensorflow as tf

from hetero_tf.layers.stacked import keras_layer
from hetero_tf.layers.static_batch_normalization import StaticBatchNormalization
from hetero_tf.layers.tracked_batch_normalization import TrackedBatchNormalization

NormKind = Literal["sbn", "bn", "wbn", "in", "gn", "ln", "none"]
TRACKED = {"bn": False, "wbn": True}
GROUPS = {"in": -1, "gn": 4, "ln": 1}


@keras.saving.register_keras_serializable("hetero_tf")
class Norm(keras.layers.Layer):
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

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return input_shape
