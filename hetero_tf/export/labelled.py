"""What the exports of all data with one label for each example share."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.evaluation.global_metrics import image_metrics
from hetero_tf.export.limits import checked, filled, most_examples
from hetero_tf.inputs import all_labels
from hetero_tf.process.learning_process import LearningProcess


def answers(process: LearningProcess, model: keras.Model, x: tf.Tensor) -> dict[str, tf.Tensor]:
    """What a model says of examples.

    Args:
        process: What the model is of.
        model: The Keras model.
        x: Floats [n, ...], as a client sends them; an example that is not finite is answered by NaN and class -1.

    Returns:
        "logits" and "probabilities" float32 [n, classes] and "class" int32 [n].
    """
    # A ReLU may turn NaN into 0, and the answer would look like any other.
    return answered(process, model, filled(x), tf.reduce_all(tf.abs(x) <= tf.float32.max, list(range(1, x.shape.rank))))


def answered(process: LearningProcess, model: keras.Model, x: tf.Tensor, good: tf.Tensor) -> dict[str, tf.Tensor]:
    """What a model says of examples of which some are no good.

    Args:
        process: What the model is of.
        model: The Keras model.
        x: Examples as they are stored, [n, ...], or one where n is 0.
        good: bool [n]; the others are answered by NaN and class -1.

    Returns:
        As `answers` does.
    """
    found = tf.cast(model(model_inputs(process, x), training=False), tf.float32)[: tf.shape(good)[0]]
    logits = tf.where(good[:, None], found, np.nan)
    return {
        "logits": logits,
        "probabilities": tf.nn.softmax(logits),
        "class": tf.where(good, tf.argmax(logits, -1, output_type=tf.int32), -1),
    }


def named(found: dict[str, tf.Tensor], names: tuple[str, ...] | None) -> dict[str, tf.Tensor]:
    """Adds "class_name" string [n] to answers where the data set names its classes; "" for class -1."""
    if names is None:
        return found
    # The last name, which is empty, is that of class -1.
    return {**found, "class_name": tf.gather(tf.constant([*names, ""]), found["class"] % (len(names) + 1))}


def limits(process: LearningProcess, model: keras.Model) -> dict[str, int]:
    """How many rows a request may hold, for `export.json`."""
    return {"rows": most_examples(model)}


def model_inputs(process: LearningProcess, x: tf.Tensor) -> tf.Tensor:
    """Examples, as a client sends them or as they are stored, in what the model takes, exactly as in training."""
    count, axis = tf.shape(x)[0], all_labels(process.dataset.classes)
    nobody = tf.zeros([1], tf.int32)
    labels = tf.zeros([count], tf.int32)
    inputs, _ = process.input.batch(x, labels, tf.range(count), 0, nobody, axis, training=False)
    return inputs


def few(batch: tf.Tensor, most: int, what: str) -> tf.Tensor:
    """The batch itself, refused by the graph where it has more than `most` examples; `what` they are."""
    count = tf.shape(batch)[0]
    return checked(batch, count <= most, f"a request must hold at most {most} {what}.", [count])


def most_at_once(model: keras.Model) -> int:
    """How many examples of several requests a server may join."""
    return most_examples(model)


def measure(process: LearningProcess, ask: Callable, request: Callable) -> dict[str, float]:
    """Measures answers on the whole test set: "loss", and "accuracy" in percent.

    Args:
        process: Its recipe says how many examples are a batch.
        ask: `(**inputs) -> outputs` of the signature "serving_default".
        request: `stored examples -> {input: array}`.
    """
    test, size = process.dataset.test, process.recipe.evaluate.batch_size
    logits = [ask(**request(test.x[first : first + size]))["logits"] for first in range(0, len(test.x), size)]
    found = image_metrics(tf.constant(np.concatenate(logits)), tf.constant(test.y))
    return {name: float(value) for name, value in found.items()}
