"""Keras models that prepare their inputs, for callers that have examples as a data set stores them."""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.codecs import Field, raw
from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.spectrogram import Spectrogram
from hetero_tf.models.requirements import accepts, check_training


def add_preprocessing(model: keras.Model, source: Input, x: np.ndarray, is_stored: bool = False) -> keras.Model:
    """Return a model that prepares its inputs, with the weights of one that takes the inputs of training.

    Args:
        model: Takes normalised images [n, height, width, channels], rows [n, features], or spectrograms.
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


def pack_tensors(names: Sequence[str], tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return packed examples float32 [n, values] of tensors [n, ...] by name, in the order of the names."""
    sizes = {name: tensors[name].shape[1:].num_elements() for name in names}
    return tf.concat([tf.reshape(tf.cast(tensors[name], tf.float32), [-1, sizes[name]]) for name in names], 1)


@keras.saving.register_keras_serializable("hetero_tf")
class UnpackArrays(keras.layers.Layer):
    """Splits packed examples [n, values] into a dictionary of the inputs of a model; ids become int32.

    Args:
        arrays: (name, shape, dtype) of each array, see `codecs.raw`.
    """

    def __init__(self, arrays: Sequence[tuple[str, Sequence[int], str]], **options: Any):
        super().__init__(**options)
        self.arrays = [(name, tuple(shape), dtype) for name, shape, dtype in arrays]
        self.sizes = [int(np.prod(shape)) for _, shape, _ in self.arrays]

    def call(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        parts = zip(self.arrays, tf.split(inputs, self.sizes, -1))
        shaped = {name: (tf.reshape(part, [-1, *shape]), dtype) for (name, shape, dtype), part in parts}
        # TensorFlow's constant folding turns the division by the deviation, 1 for ids, into an inexact product.
        return {name: tf.cast(tf.round(x), tf.int32) if dtype == "int32" else x for name, (x, dtype) in shaped.items()}

    @property
    def id_slices(self) -> list[slice]:
        """Ranges of the packed values that are ids."""
        ends = itertools.accumulate(self.sizes)
        return [
            slice(end - size, end)
            for (_, _, dtype), size, end in zip(self.arrays, self.sizes, ends)
            if dtype == "int32"
        ]


def packed_builder(function: Any, fields: Sequence[Field]) -> Any:
    """Return a builder of models for packed arrays from a builder of models with named inputs; else the builder."""
    if not isinstance(fields[0].codec, raw.Codec):
        return function
    size = sum(field.codec.size for field in fields)
    layout = [(field.name, field.codec.shape, field.codec.dtype) for field in fields]

    @functools.wraps(function)
    def build(*args, **options):
        model = function(*args, **options)
        check_training(model)
        if not isinstance(model, keras.Model):
            return model
        inputs = keras.Input((size,), name="examples")
        return keras.Model(
            inputs, model(_arrange(model, UnpackArrays(layout, name="arrays", dtype=inputs.dtype)(inputs)))
        )

    return build


def _arrange(model, arrays):
    """Return arrays by name in the structure of the model's inputs.

    Raises:
        InputError: A functional model has inputs of other names or shapes.
    """
    if not getattr(model, "inputs", None):
        return arrays
    by_name = model.input if isinstance(model.input, dict) else {tensor.name: tensor for tensor in model.inputs}
    received, expected = ({name: tuple(x.shape[1:]) for name, x in each.items()} for each in (by_name, arrays))
    if received.keys() != expected.keys() or not all(accepts(received[name], expected[name]) for name in expected):
        raise InputError(
            "`model` must have one input for each array of the data, of the same name and shape: "
            f"{_format(expected)}. Received: {_format(received)}"
        )
    return arrays if isinstance(model.input, dict) else [arrays[tensor.name] for tensor in model.inputs]


def _format(shapes):
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items()))


def named_model(model: keras.Model, fields: Sequence[Field]) -> keras.Model:
    """Return the model of packed arrays as one whose inputs are the arrays as the data set has them; else the model."""
    if not isinstance(fields[0].codec, raw.Codec):
        return model
    inputs = {field.name: keras.Input(field.codec.shape, dtype=field.codec.dtype, name=field.name) for field in fields}
    return keras.Model(inputs, model(PackArrays(list(inputs), name="examples")(inputs)))


@keras.saving.register_keras_serializable("hetero_tf")
class PackArrays(keras.layers.Layer):
    """Packs a dictionary of arrays [n, ...] as float32 [n, values].

    Args:
        names: Names of the arrays in order.
    """

    def __init__(self, names: Sequence[str], **options: Any):
        super().__init__(**options)
        self.names = list(names)

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return pack_tensors(self.names, inputs)
