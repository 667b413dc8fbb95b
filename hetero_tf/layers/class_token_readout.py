"""ClassTokenReadout: what a classifier reads of a row of tokens."""

import keras


@keras.saving.register_keras_serializable("hetero_tf")
class ClassTokenReadout(keras.layers.Layer):
    """Hands on the first token, which `PatchEmbedding` puts before the patches.

    Input shape: `(batch, positions, width)`. Output shape: `(batch, width)`. Several clients may lead.
    Reference: Dosovitskiy et al. 2021 (arXiv 2010.11929).
    """

    def call(self, inputs):
        return inputs[..., 0, :]

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-2], input_shape[-1])
