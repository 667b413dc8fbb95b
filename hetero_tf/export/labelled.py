"""Functions that the export tasks of data with one label per example share."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.evaluation.global_metrics import image_metrics
from hetero_tf.export.limits import assert_in_graph, max_examples, pad_if_empty
from hetero_tf.inputs import all_labels
from hetero_tf.process.learning_process import LearningProcess


def classify(process: LearningProcess, model: keras.Model, x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the outputs of a model for examples from a request.

    Args:
        process: Process that trained the model.
        model: The Keras model.
        x: Floats [n, ...] of a request; an example that is not finite gets NaN and class -1.

    Returns:
        "logits" and "probabilities" float32 [n, classes] and "class" int32 [n].
    """
    # A ReLU may turn NaN into 0, which would make the output look valid.
    return classify_valid(
        process, model, pad_if_empty(x), tf.reduce_all(tf.abs(x) <= tf.float32.max, list(range(1, x.shape.rank)))
    )


def classify_valid(
    process: LearningProcess, model: keras.Model, x: tf.Tensor, is_valid: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Return the outputs of a model for examples of which some are invalid.

    Args:
        process: Process that trained the model.
        model: The Keras model.
        x: Stored examples [n, ...], or a blank one if n is 0.
        is_valid: bool [n]; other examples get NaN and class -1.

    Returns:
        See `classify`.
    """
    raw_logits = tf.cast(model(model_inputs(process, x), training=False), tf.float32)[: tf.shape(is_valid)[0]]
    logits = tf.where(is_valid[:, None], raw_logits, np.nan)
    return {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
        "class": tf.where(is_valid, tf.argmax(logits, -1, output_type=tf.int32), -1),
    }


def add_class_names(outputs: dict[str, tf.Tensor], class_names: tuple[str, ...] | None) -> dict[str, tf.Tensor]:
    """Add "class_name" string [n] to outputs if the data set names its classes; "" for class -1."""
    if class_names is None:
        return outputs
    # Class -1 gets the last name, which is empty.
    return {
        **outputs,
        "class_name": tf.gather(tf.constant([*class_names, ""]), outputs["class"] % (len(class_names) + 1)),
    }


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """Return the limits of a request for `export.json`."""
    return {"rows": max_examples(model)}


def model_inputs(process: LearningProcess, x: tf.Tensor) -> tf.Tensor:
    """Return the inputs of the Keras model for examples of a request or data set, prepared as in training."""
    count, axis = tf.shape(x)[0], all_labels(process.dataset.classes)
    key = tf.zeros([1], tf.int32)
    labels = tf.zeros([count], tf.int32)
    inputs, _ = process.input.batch(x, labels, tf.range(count), 0, key, axis, training=False)
    return inputs


def check_count(batch: tf.Tensor, limit: int, noun: str) -> tf.Tensor:
    """Return the batch; the graph raises an error if it has more than `limit` examples.

    Args:
        batch: Examples [n, ...].
        limit: Largest number of examples.
        noun: Plural noun for the examples, such as "images".
    """
    count = tf.shape(batch)[0]
    return assert_in_graph(batch, count <= limit, f"a request must have at most {limit} {noun}.", [count])


def max_batch_size(model: keras.Model) -> int:
    """Return the number of examples from several requests that a server may batch."""
    return max_examples(model)


def measure(process: LearningProcess, predict: Callable, request: Callable) -> dict[str, float]:
    """Measure an exported model on the whole test set: "loss", and "accuracy" in percent.

    Args:
        process: Process that trained the model; its recipe sets the batch size.
        predict: `(**inputs) -> outputs` of the signature "serving_default".
        request: `stored examples -> {input: array}`.
    """
    test, size = process.dataset.test, process.recipe.evaluate.batch_size
    logits = [predict(**request(test.x[first : first + size]))["logits"] for first in range(0, len(test.x), size)]
    metrics = image_metrics(tf.constant(np.concatenate(logits)), tf.constant(test.y))
    return {name: float(value) for name, value in metrics.items()}
