"""ClassTokenReadout: selects the class token of a sequence."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("hetero_tf")
class ClassTokenReadout(keras.layers.Layer):
    """Returns the first token, which `PatchEmbedding` adds before the patches.

    Input shape: `(batch, positions, width)`. Output shape: `(batch, width)`. A leading axis of clients is allowed.
    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929).
    """

    GEOMETRY = {"inputs": "tokens", "outputs": "(channels,)"}

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[..., 0, :]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape[:-2], input_shape[-1])
