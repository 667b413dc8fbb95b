"""Keras models that normalise their inputs, for callers that have pixels as a data set stores them."""

import warnings
from collections.abc import Mapping, Sequence

import keras
import numpy as np
import tensorflow as tf


def add_normalisation(
    model: keras.Model, mean_and_std: Mapping[str, Sequence[float]], of_bytes: bool = False
) -> keras.Model:
    """Return a model that normalises its inputs, with the weights of one that takes normalised inputs.

    Args:
        model: Takes normalised images [n, height, width, channels], or rows [n, features].
        mean_and_std: "mean" and "std", a value for each channel or feature; empty: no normalisation.
        of_bytes: Whether the new model takes pixels in 0..255, and warns if they seem to be in 0..1; else in 0..1.

    Returns:
        The new model; the given one if nothing changes.
    """
    dtype, before = model.inputs[0].dtype, []
    if of_bytes:
        before.append(BytePixels(name="pixels", dtype=dtype))
    if mean_and_std:
        variance = np.square(mean_and_std["std"])
        before.append(keras.layers.Normalization(mean=mean_and_std["mean"], variance=variance, dtype=dtype))
    if not before:
        return model
    inputs = value = keras.Input(model.inputs[0].shape[1:], dtype=dtype, name="inputs")
    for layer in before:
        value = layer(value)
    return keras.Model(inputs, model(value))


@keras.saving.register_keras_serializable("hetero_tf")
class BytePixels(keras.layers.Layer):
    """Divides pixels by 255, and warns if they seem to be divided already."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if tf.executing_eagerly() and 0 < float(tf.reduce_max(inputs)) <= 1:
            warnings.warn(
                "this model takes pixels in 0..255 as the data set has them, and these are in 0..1; multiply them by "
                "255, or use process.network(state), which takes normalised inputs",
                stacklevel=2,
            )
        return inputs / 255
