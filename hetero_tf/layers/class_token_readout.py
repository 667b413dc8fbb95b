"""ClassTokenReadout: what a classifier reads of a row of tokens."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("hetero_tf")
class ClassTokenReadout(keras.layers.Layer):
    """Hands on the first token, which `PatchEmbedding` puts before the patches.

    Input shape: `(batch, positions, width)`. Output shape: `(batch, width)`. Several clients may lead.
    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929).
    """

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs[..., 0, :]

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (*input_shape[:-2], input_shape[-1])
