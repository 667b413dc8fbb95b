"""Models and data in each other's forms: pixels, samples, several arrays and outputs, and strings.

Keras models may prepare their inputs, for callers that have examples as a data set stores them. The layers of a model
that consume strings run on the data once, and the rest is trained.
"""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.codecs import Field, raw, split_stored
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.in_memory import POSITION, pack_splits
from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.audio import Spectrogram
from hetero_tf.models.custom_model import as_functional
from hetero_tf.models.requirements import accepts, check_training


def add_preprocessing(model: keras.Model, source: Input, x: np.ndarray, is_stored: bool = False) -> keras.Model:
    """Return a model that prepares its inputs, with the weights of one that takes the inputs of training.

    Args:
        model: Takes normalised images [n, height, width, channels], rows [n, features], or spectrograms.
        is_stored: Whether the new model takes pixels in 0..255 and samples of 16 bits; else pixels in 0..1 and samples
            in -1..1.

    Returns:
        The new model; the given one if nothing changes.
    """
    dtype, shape = model.inputs[0].dtype, model.inputs[0].shape[1:]
    before: list[keras.layers.Layer] = []
    if is_stored and x.dtype == np.uint8:
        before.append(keras.layers.Rescaling(1 / 255, name="pixels", dtype=dtype))
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


# (name, shape, dtype) of each packed array.
Layout = Sequence[tuple[str, Sequence[int], str]]


def unpack_tensors(layout: Layout, packed: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the tensors of packed values [n, values] by name; whole numbers become int32."""
    sizes = [int(np.prod(shape)) for _, shape, _ in layout]
    parts = zip(layout, tf.split(packed, sizes, -1))
    shaped = {name: (tf.reshape(part, [-1, *shape]), dtype) for (name, shape, dtype), part in parts}
    # TensorFlow's constant folding turns the division by the deviation, 1 for ids, into an inexact product.
    return {name: tf.cast(tf.round(x), tf.int32) if dtype == "int32" else x for name, (x, dtype) in shaped.items()}


@keras.saving.register_keras_serializable("hetero_tf")
class UnpackArrays(keras.layers.Layer):
    """Splits packed examples [n, values] into a dictionary of the inputs of a model; ids become int32.

    Args:
        arrays: (name, shape, dtype) of each array, see `codecs.raw`.
    """

    def __init__(self, arrays: Layout, **options: Any):
        super().__init__(**options)
        self.arrays = [(name, tuple(shape), dtype) for name, shape, dtype in arrays]

    def call(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return unpack_tensors(self.arrays, inputs)


def packed_builder(function: Any, dataset: Dataset) -> Any:
    """Return a builder of models of one input and output from one with several; else the builder.

    The inputs of the models are packed arrays, and their outputs are packed in the order of the targets.
    """
    fields, names = dataset.fields, [field.name for field in dataset.outputs]
    has_arrays = isinstance(fields[0].codec, raw.Codec)
    if not has_arrays and not names:
        return function

    @functools.wraps(function)
    def build(width, classes, **options):
        model = function(width, dataset.label_count if names else classes, **options)
        check_training(model)
        if not isinstance(model, keras.Model):
            return model
        _, model = split_strings(model)
        model = as_functional(model) if isinstance(model, keras.Sequential) and model.inputs else model
        # A subclass of Model that was not called has no inputs and outputs of its own.
        if not has_arrays:
            inputs, outputs = model.input, model.outputs
        else:
            layout = [(field.name, field.codec.shape, field.codec.dtype) for field in fields]
            inputs = keras.Input((sum(field.codec.size for field in fields),), name="examples")
            outputs = model(_arrange(model, UnpackArrays(layout, name="arrays", dtype=inputs.dtype)(inputs)))
        if names:
            by_name = dict(zip(output_names(model), keras.tree.flatten(outputs), strict=True))
            outputs = PackArrays(names, name="outputs", autocast=False)(by_name)
        return keras.Model(inputs, outputs)

    return build


def output_names(model: keras.Model) -> list[str]:
    """Return the names of a functional model's outputs in their order, as Keras uses them."""
    return sorted(model.output) if isinstance(model.output, dict) else model.output_names


def name_outputs(dataset: Dataset, model: Any) -> Dataset:
    """Return the data with the names of a model's outputs for targets that were passed as a tuple.

    Raises:
        InputError: The data do not have one target for each output of the model.
    """
    shapes = [tuple(tensor.shape) for tensor in getattr(model, "outputs", None) or ()]
    names, targets = output_names(model) if len(shapes) > 1 else [], [field.name for field in dataset.outputs]
    if {*names} == {*targets}:
        return dataset
    if targets != [POSITION.format(index) for index in range(len(names))]:
        is_one = shapes or isinstance(model, keras.Sequential)
        unnamed = "one output" if is_one else "a model that is not functional, whose outputs have no names"
        raise InputError(
            "the data must have a target for each output of `model`: give `y_train` and `y_test` as dictionaries of "
            "their names, and set `task: multi_task` in the recipe; or give a model with one output. Received: "
            f"{', '.join(targets) or 'one target'} and {_format(dict(zip(names, shapes))) or unnamed}"
        )
    outputs = tuple(Field(name, field.codec) for name, field in zip(names, dataset.outputs))
    return dataclasses.replace(dataset, outputs=outputs, class_names=tuple(names))


def _arrange(model, arrays):
    """Return arrays by name in the structure of a model's inputs; refuse other names or shapes of a functional one."""
    if not getattr(model, "inputs", None):
        return arrays
    by_name = model.input if isinstance(model.input, dict) else {tensor.name: tensor for tensor in model.inputs}
    received, expected = ({name: tuple(x.shape[1:]) for name, x in each.items()} for each in (by_name, arrays))
    if received.keys() != expected.keys() or not all(accepts(received[name], expected[name]) for name in expected):
        raise InputError(
            "`model` must have one input for each array of the data, of the same name and shape: "
            f"{_format(expected)}. Received: {_format(received)}"
        )
    structure = model.input
    return arrays if isinstance(structure, dict) else keras.tree.map_structure(lambda x: arrays[x.name], structure)


def _format(shapes):
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items()))


def named_model(
    model: keras.Model, fields: Sequence[Field], outputs: Layout = (), strings: keras.Model | None = None
) -> keras.Model:
    """Return the model of packed arrays as one with the inputs and outputs of the user's model; else the model.

    Args:
        outputs: Layout of several packed outputs.
        strings: The layers of the model that consume strings.
    """
    inputs = value = model.inputs[0]
    if isinstance(fields[0].codec, raw.Codec):
        inputs = {each.name: keras.Input(each.codec.shape, dtype=each.codec.dtype, name=each.name) for each in fields}
        value = PackArrays(list(inputs), name="examples")(inputs)
    elif not outputs:
        return model
    value = model(value)
    named = keras.Model(inputs, UnpackArrays(outputs, dtype=value.dtype)(value) if outputs else value, name="numbers")
    if strings is None:
        return named
    # `formats.keras` compares the inner model by its name.
    others = {name: tensor for name, tensor in inputs.items() if name not in strings.output}
    return keras.Model(strings.input | others, named(strings(strings.input) | others))


@keras.saving.register_keras_serializable("hetero_tf")
class PackArrays(keras.layers.Layer):
    """Packs a dictionary of arrays [n, ...] as [n, values] in the type of its variables.

    Args:
        names: Names of the arrays in order.
    """

    # One output of the model is several of its user.
    IS_PACKED = True

    def __init__(self, names: Sequence[str], **options: Any):
        super().__init__(**options)
        self.names = list(names)

    def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        sizes = {name: inputs[name].shape[1:].num_elements() for name in self.names}
        values = [tf.reshape(tf.cast(inputs[name], self.variable_dtype), [-1, sizes[name]]) for name in self.names]
        return tf.concat(values, 1)


LAYERS = (keras.layers.TextVectorization, keras.layers.StringLookup, keras.layers.Hashing)
# Examples that the layers convert at once.
BATCH = 1024


def split_strings(model: Any) -> tuple[keras.Model | None, Any]:
    """Return the model of the layers that consume strings, and the rest; None and the model without such layers.

    The outputs of the first, by name, are inputs of the second; other inputs have the names of the model's.

    Raises:
        InputError: Another layer consumes or makes strings.
    """
    strings = {tensor.name: tensor for tensor in getattr(model, "inputs", None) or () if tensor.dtype == "string"}
    if not strings:
        return None, model
    model = as_functional(model) if isinstance(model, keras.Sequential) else model
    numbers: dict[str, keras.KerasTensor] = {}
    for node in itertools.chain.from_iterable(model._nodes_by_depth.values()):
        sources = [tensor.name for tensor in node.input_tensors if tensor.dtype == "string"]
        made = [tensor for tensor in node.output_tensors if tensor.dtype == "string" and not node.is_input]
        if made or sources and not isinstance(node.operation, LAYERS):
            raise InputError(
                f"only {', '.join(layer.__name__ for layer in LAYERS)} may read the strings of `model`, each an input "
                f"of the outer model, and no layer may return strings. Received: {node.operation.name}, "
                f"{type(node.operation).__name__}"
            )
        for name in sources:
            count = sum(each.partition("__")[0] == name for each in numbers)
            numbers[f"{name}__{count}" if count else name] = node.output_tensors[0]
    others = {tensor.name: tensor for tensor in model.inputs if tensor.dtype != "string"}
    with warnings.catch_warnings():
        # The tensors between the parts have names of Keras.
        warnings.simplefilter("ignore")
        return keras.Model(strings, numbers), keras.Model(numbers | others, model.output)


def encode_strings(dataset: Dataset, layers: keras.Model | None) -> Dataset:
    """Return the data with the numbers that layers make of their strings.

    Args:
        layers: The first result of `split_strings`.

    Raises:
        InputError: The data have strings that no layer consumes.
    """
    names = dataset.text_fields
    expected = [] if layers is None else sorted(layers.input)
    if not names:
        return dataset
    if layers is None or names != expected:
        raise InputError(
            f"{dataset.source}: `model` must have an input of strings, such as keras.Input((), dtype='string', "
            f"name='{names[0]}'), for each array of texts. Received: inputs {expected}, arrays {names}"
        )
    train, test, fields = pack_splits(
        dataset.source, "x", *(_encode(dataset.fields, split.x, layers) for split in (dataset.train, dataset.test))
    )
    sizes = {name: _vocabulary_size(tensor) for name, tensor in layers.output.items()}
    fields = tuple(
        dataclasses.replace(field, codec=dataclasses.replace(field.codec, low=0.0, high=float(sizes[field.name] - 1)))
        if field.name in sizes and field.codec.dtype == "int32"
        else field
        for field in fields
    )
    splits = {name: dataclasses.replace(getattr(dataset, name), x=x) for name, x in (("train", train), ("test", test))}
    return dataclasses.replace(dataset, **splits, fields=fields, digest=dataset.sha256)


def _encode(fields: tuple[Field, ...], x: np.ndarray, layers: keras.Model) -> dict[str, np.ndarray]:
    """Return the arrays of packed examples by name, with numbers in place of strings."""
    arrays = {
        field.name: value
        for field, part in zip(fields, split_stored(fields, x))
        for value in field.codec.send(field.name, part).values()
    }
    texts = {name: arrays.pop(name) for name in layers.input}
    batches = [
        layers({name: tf.constant(values[first : first + BATCH]) for name, values in texts.items()})
        for first in range(0, len(x), BATCH)
    ]
    return arrays | {name: np.concatenate([batch[name] for batch in batches]) for name in layers.output}


def _vocabulary_size(tensor):
    layer = tensor._keras_history.operation
    return layer.num_bins if isinstance(layer, keras.layers.Hashing) else layer.vocabulary_size()
