"""Scaler: keeps the magnitude of activations equal at every width in training."""

import keras
import tensorflow as tf

from hetero_tf.layers.stacked.forms import SameShape


@keras.saving.register_keras_serializable("hetero_tf")
class Scaler(SameShape):
    """Divides by the relative width of the sub-model in training; the identity otherwise.

    The sums of a sub-model with a share `scale` of the channels are about `scale` times as large. The division allows
    all levels to share parameters with one global model. The layer follows a parametric layer and precedes the norm
    and the activation. Directly before a scale-invariant norm it only affects epsilon.

    Args:
        scale: Width of this sub-model divided by the width of the global model, in (0, 1]. The model builder
            supplies it; 1 at the global level.
        enabled: False disables the layer (ablation).

    Input and output shape: any, equal.
    Reference: HeteroFL (arXiv 2010.01264), section 3.2.
    """

    GEOMETRY = {"outputs": "inputs"}

    def __init__(self, scale: float = 1.0, enabled: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.enabled = enabled
        self.supports_masking = True

    def call(self, inputs: tf.Tensor, training: bool | None = False) -> tf.Tensor:
        if training and self.enabled and self.scale != 1:
            return inputs / self.scale
        return inputs
