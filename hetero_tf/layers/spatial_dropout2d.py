"""SpatialDropout2D: dropout of whole channels."""

import keras
import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.layers.dropout import Dropout


@keras.saving.register_keras_serializable("hetero_tf")
class SpatialDropout2D(Dropout):
    """`Dropout` that sets all positions of an example's channel to zero, or none.

    Args:
        rate: Share of channels set to zero, in [0, 1), as a multiple of 2**-16.

    Input and output shape: `(batch, height, width, channels)`.
    Reference: Tompson et al. 2015 (arXiv 1411.4280).
    """

    GEOMETRY = {"inputs": "map", "outputs": "inputs"}

    def __init__(self, rate: Share, clients: int = 1, **kwargs):
        super().__init__(rate, clients, **kwargs)

    def draws_shape(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.stack([tf.shape(inputs)[0], 1, 1, inputs.shape[-1]])
