"""Keras models with several named inputs, as models of the packed examples of `data.named_arrays`, and back."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.named_arrays import NamedArray
from hetero_tf.models.requirements import check_training


def pack_tensors(names: Sequence[str], tensors: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Return packed examples float32 [n, values] of tensors [n, ...] by name, in the order of the names."""
    sizes = {name: tensors[name].shape[1:].num_elements() for name in names}
    return tf.concat([tf.reshape(tf.cast(tensors[name], tf.float32), [-1, sizes[name]]) for name in names], 1)


@keras.saving.register_keras_serializable("hetero_tf")
class UnpackArrays(keras.layers.Layer):
    """Splits packed examples [n, values] into a dictionary of the inputs of a model; ids become int32.

    Args:
        arrays: (name, shape, dtype) of each array, see `data.named_arrays.NamedArray`.
    """

    def __init__(self, arrays: Sequence[tuple[str, Sequence[int], str]], **options: Any):
        super().__init__(**options)
        self.arrays = [(name, tuple(shape), dtype) for name, shape, dtype in arrays]
        self.sizes = [int(np.prod(shape)) for _, shape, _ in self.arrays]

    def call(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        parts = zip(self.arrays, tf.split(inputs, self.sizes, -1))
        shaped = {name: (tf.reshape(part, [-1, *shape]), dtype) for (name, shape, dtype), part in parts}
        return {name: tf.cast(x, tf.int32) if dtype == "int32" else x for name, (x, dtype) in shaped.items()}

    def compute_output_spec(self, inputs: keras.KerasTensor) -> dict[str, keras.KerasTensor]:
        return {
            name: keras.KerasTensor((inputs.shape[0], *shape), "int32" if dtype == "int32" else inputs.dtype)
            for name, shape, dtype in self.arrays
        }

    def get_config(self) -> dict:
        return super().get_config() | {"arrays": [[name, list(shape), dtype] for name, shape, dtype in self.arrays]}

    @property
    def id_slices(self) -> list[slice]:
        """Ranges of the packed values that are ids."""
        ends = itertools.accumulate(self.sizes)
        return [
            slice(end - size, end)
            for (_, _, dtype), size, end in zip(self.arrays, self.sizes, ends)
            if dtype == "int32"
        ]


def packed_builder(function: Any, arrays: Sequence[NamedArray]) -> Any:
    """Return a builder of models for packed examples from a builder of models with named inputs.

    Args:
        function: `models.custom_model.ModelBuilder`.
        arrays: Arrays of the examples.
    """
    size, layout = sum(array.size for array in arrays), [(array.name, array.shape, array.dtype) for array in arrays]

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
    if received != expected:
        raise InputError(
            "`model` must have one input for each array of the data, of the same name and shape: "
            f"{_format(expected)}. Received: {_format(received)}"
        )
    return arrays if isinstance(model.input, dict) else [arrays[tensor.name] for tensor in model.inputs]


def _format(shapes):
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items()))


def named_model(model: keras.Model, arrays: Sequence[NamedArray]) -> keras.Model:
    """Return the model of packed examples as one whose inputs are the arrays as the data set has them."""
    inputs = {array.name: keras.Input(array.shape, dtype=array.dtype, name=array.name) for array in arrays}
    return keras.Model(inputs, model(PackArrays([array.name for array in arrays], name="examples")(inputs)))


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

    def get_config(self) -> dict:
        return super().get_config() | {"names": self.names}
