"""Keras models that prepare their inputs, for callers that have examples as a data set stores them."""

import dataclasses
import warnings

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.spectrogram import Spectrogram


def add_preprocessing(model: keras.Model, source: Input, x: np.ndarray, is_stored: bool = False) -> keras.Model:
    """Return a model that prepares its inputs, with the weights of one that takes the inputs of training.

    Args:
        model: Takes normalised images [n, height, width, channels], rows [n, features], or spectrograms.
        source: The input pipeline.
        x: Examples as stored.
        is_stored: Whether the new model takes pixels in 0..255, and warns if they seem to be in 0..1, and samples of 16
            bits; else pixels in 0..1 and samples in -1..1.

    Returns:
        The new model; the given one if nothing changes.
    """
    dtype, shape = model.inputs[0].dtype, model.inputs[0].shape[1:]
    before: list[keras.layers.Layer] = []
    if is_stored and x.dtype == np.uint8:
        before.append(BytePixels(name="pixels", dtype=dtype))
    if is_stored and x.dtype == np.int16:
        before.append(keras.layers.Rescaling(1 / FULL_SCALE, dtype=dtype))
    if source.spectrogram is not None:
        before.append(LogMelSpectrogram(**dataclasses.asdict(source.spectrogram), dtype=dtype))
        shape = x.shape[1:]
    if source.normalised_by:
        variance = np.square(source.normalised_by["std"])
        before.append(keras.layers.Normalization(mean=source.normalised_by["mean"], variance=variance, dtype=dtype))
    if not before:
        return model
    inputs = value = keras.Input(shape, dtype=dtype, name="inputs")
    for layer in before:
        value = layer(value)
    return keras.Model(inputs, model(value))


@keras.saving.register_keras_serializable("hetero_tf")
class LogMelSpectrogram(keras.layers.Layer):
    """Log-mel spectrograms `(batch, frames, bands, 1)` of samples `(batch, samples)`; see `Spectrogram`."""

    def __init__(self, rate: int, window: int, hop: int, bands: int, **kwargs):
        super().__init__(**kwargs)
        self.spectrogram = Spectrogram(rate, window, hop, bands)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.spectrogram(inputs)

    def compute_output_shape(self, input_shape: tuple) -> tuple:
        return (input_shape[0], self.spectrogram.frames(input_shape[1]), self.spectrogram.bands, 1)


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
