"""Models with inputs of strings: the layers that consume strings run on the data once, and the rest is trained."""

import dataclasses
import itertools
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, split_stored
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.in_memory import pack_splits

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
    # A Sequential model does not show its nodes.
    model = keras.Model(model.inputs, model.outputs) if isinstance(model, keras.Sequential) else model
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
    names = [field.name for field in dataset.fields if getattr(field.codec, "dtype", None) == "string"]
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
