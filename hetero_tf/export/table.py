"""Export task of a model for tables: signatures for rows of numbers."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.columns import feature_names
from hetero_tf.export import labelled
from hetero_tf.export.labelled import add_class_names, check_count, classify
from hetero_tf.export.limits import max_examples
from hetero_tf.process.learning_process import LearningProcess

# Input of the signature `serving_default`.
INPUT_NAME = "features"
# Signature that other formats convert.
PORTABLE_SIGNATURE = "serve_numbers"
# Test rows in one request when outputs are compared with those of the Keras model.
CHECKED_EXAMPLES = 32
# Notes list the names of at most this number of features.
MAX_LISTED_FEATURES = 50
max_batch_size, model_inputs, limits = labelled.max_batch_size, labelled.model_inputs, labelled.limits


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """Return `{signature: (function, input specs)}`, and no lookup tables.

    `serving_default`: `features` float32 [n, features] with the values of the table -> logits, probabilities
    [n, classes], class [n], and class_name [n] if the data set names its classes. `serve_numbers`: the same without
    names, for converters.

    A row with a number that is not finite gets NaN and class -1, and does not affect other rows. A request of more
    than `max_examples` rows, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Not used.
    """
    shape, limit = process.input.shape(process.dataset.train.x), max_examples(model)

    def serve_numbers(features):
        # Servers do not check shapes, and a wrong rank may abort the process inside a kernel.
        return classify(process, model, check_count(tf.ensure_shape(features, (None, *shape)), limit, "rows"))

    def serving_default(features):
        return add_class_names(serve_numbers(features), process.dataset.class_names)

    specs = [tf.TensorSpec((None, *shape), tf.float32, name="features")]
    return {"serving_default": (serving_default, specs), "serve_numbers": (serve_numbers, specs)}, ()


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the request of `serving_default` for stored rows."""
    return {INPUT_NAME: x}


def measure(process: LearningProcess, predict: Callable) -> dict[str, float]:
    """Measure an exported model on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, predict, functools.partial(request, process))


def input_spec(process: LearningProcess) -> dict:
    """Return the description of the model's input for `export.json`; "columns" is None if they are unknown."""
    (features,) = process.input.shape(process.dataset.train.x)
    columns = process.dataset.columns
    column_specs = columns and [
        {"name": column.name, "features": list(column.features), "categories": list(column.categories)}
        for column in columns
    ]
    return {
        "kind": "table",
        "features": features,
        "columns": column_specs,
        "normalised_by": process.input.normalised_by,
    }


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """Return sentences on the inputs for callers of the model."""
    (features,) = process.input.shape(process.dataset.train.x)
    sentences = [
        f"A row has {features} numbers with the values of the table. The model normalises them.",
        "A row with a number that is not finite gets NaN and class -1.",
    ]
    columns = process.dataset.columns
    if columns is not None and features <= MAX_LISTED_FEATURES:
        sentences.append(f"Order of the features: {', '.join(f'`{name}`' for name in feature_names(columns))}.")
        sentences += [
            f"`{column.name}` is a number for each category: "
            f"{', '.join(f'{code} {name}' for code, name in enumerate(column.categories))}."
            for column in columns
            if column.categories and not column.one_hot
        ]
        if any(column.categories and column.one_hot for column in columns):
            sentences.append("`column=category` is 1 if the column has that category, else 0.")
    return sentences


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Return three lines of Python that call the model inside the folder of its version."""
    (features,) = process.input.shape(process.dataset.train.x)
    return (
        'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["serving_default"]\n'
        f'print(serve(features=tf.zeros([1, {features}]))["probabilities"])\n'
    )
