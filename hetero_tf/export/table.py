"""What the export of a model for tables answers to: rows of numbers."""

import functools
from collections.abc import Callable, Collection
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.data.columns import feature_names
from hetero_tf.export import labelled
from hetero_tf.export.labelled import answers, few, named
from hetero_tf.export.limits import most_examples
from hetero_tf.process.learning_process import LearningProcess

# What a client of `serving_default` gives.
GIVEN = "features"
# The signature that other runtimes get.
PORTABLE = "serve_numbers"
# Test rows in one request when answers are compared with the model's.
COMPARED = 32
# Features that notes name one by one.
NAMED = 50
most_at_once, model_inputs, limits = labelled.most_at_once, labelled.model_inputs, labelled.limits


def endpoints(process: LearningProcess, model: keras.Model, scratch: Path) -> tuple[dict, tuple]:
    """`{signature: (function, input specs)}`, and the lookup tables that they use: none.

    `serving_default`: `features` float32 [n, features] as they stand in the table -> logits, probabilities
    [n, classes], class [n], and class_name [n] where the data set names its classes. `serve_numbers`: the same without
    names, for converters.

    A row with a number that is not finite is answered by NaN and class -1, the others of its batch as ever. A request
    of more than `most_examples` rows, or of another shape, is an error.

    Args:
        process: `process.LearningProcess`.
        model: The Keras model.
        scratch: Not used.
    """
    shape, most = process.input.shape(process.dataset.train.x), most_examples(model)

    def serve_numbers(features):
        # Servers hand on any shape, and kernels may end the process over a wrong rank.
        return answers(process, model, few(tf.ensure_shape(features, (None, *shape)), most, "rows"))

    def serving_default(features):
        return named(serve_numbers(features), process.dataset.class_names)

    specs = [tf.TensorSpec((None, *shape), tf.float32, name="features")]
    return {"serving_default": (serving_default, specs), "serve_numbers": (serve_numbers, specs)}, ()


def request(process: LearningProcess, x: np.ndarray) -> dict[str, np.ndarray]:
    """Stored rows as a client of `serving_default` sends them."""
    return {GIVEN: x}


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures answers on the whole test set, see `labelled.measure`."""
    return labelled.measure(process, ask, functools.partial(request, process))


def input_spec(process: LearningProcess) -> dict:
    """What the model takes, ready for JSON: "columns" says what stands in a row where that is known."""
    (features,) = process.input.shape(process.dataset.train.x)
    columns = process.dataset.columns
    told = columns and [
        {"name": column.name, "features": list(column.features), "categories": list(column.categories)}
        for column in columns
    ]
    return {"kind": "table", "features": features, "columns": told, "normalised_by": process.input.normalised_by}


def notes(process: LearningProcess, signatures: Collection[str]) -> list[str]:
    """What callers must know of the inputs, a sentence each."""
    (features,) = process.input.shape(process.dataset.train.x)
    found = [
        f"A row has {features} numbers as they stand in the table. The model normalises them itself.",
        "A row with a number that is not finite is answered by NaN and class -1.",
    ]
    columns = process.dataset.columns
    if columns is not None and features <= NAMED:
        found.append(f"In this order: {', '.join(f'`{name}`' for name in feature_names(columns))}.")
        found += [
            f"`{column.name}` is a number for each category: "
            f"{', '.join(f'{place} {name}' for place, name in enumerate(column.categories))}."
            for column in columns
            if column.categories and not column.one_hot
        ]
        if any(column.categories and column.one_hot for column in columns):
            found.append("`column=category` is 1 where the column holds that category, else 0.")
    return found


def calls(process: LearningProcess, signatures: Collection[str]) -> str:
    """Three lines of Python that call the model inside the folder of its version."""
    (features,) = process.input.shape(process.dataset.train.x)
    return (
        'import tensorflow as tf\nserve = tf.saved_model.load(".").signatures["serving_default"]\n'
        f'print(serve(features=tf.zeros([1, {features}]))["probabilities"])\n'
    )
