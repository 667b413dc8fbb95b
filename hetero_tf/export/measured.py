"""What an exported model says of the test set: the files themselves are asked, as a server would ask them."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import seeds
from hetero_tf.base.errors import BadInput
from hetero_tf.evaluation.global_metrics import image_metrics
from hetero_tf.export import images, text
from hetero_tf.export.limits import most_words
from hetero_tf.inputs import all_labels
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.process import LearningProcess

# Of logits, as a share of the largest one where that is above 1; the same products in another order differ by less.
TOLERANCE = 1e-4


def pixels(x: np.ndarray) -> np.ndarray:
    """Returns stored images as float32 in 0..1, as a client of the model sends them."""
    return x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)


def measure(process: LearningProcess, ask: Callable) -> dict[str, float]:
    """Measures an exported model on the whole test set: "loss", and "accuracy" in percent or "perplexity".

    Args:
        process: What the model is of; its recipe says how many examples are a batch.
        ask: `(**inputs) -> outputs` of the signature "serving_default".
    """
    measured = _of_images if process.dataset.kind == "images" else _of_text
    return measured(process, ask)


def _of_images(process, ask):
    test, size = process.dataset.test, process.recipe.evaluate.batch_size
    logits = [ask(image=pixels(test.x[first : first + size]))["logits"] for first in range(0, len(test.x), size)]
    found = image_metrics(tf.constant(np.concatenate(logits)), tf.constant(test.y))
    return {name: float(value) for name, value in found.items()}


def _of_text(process, ask):
    """As `global_metrics.build_text_metrics`: the same masks, and perplexity as the mean over batches."""
    test, size, classes = process.dataset.test.x, process.recipe.evaluate.batch_size, process.dataset.classes
    source, key, x = process.input, seeds.seed32(process.recipe.seed, "test masks"), tf.constant(process.dataset.test.x)
    totals, count = np.zeros(2), 0
    for row in range(0, len(test), size):
        for start in source.starts(test):
            chosen = tf.range(row, min(row + size, len(test)))
            noise = tf.constant([key, row, start])
            inputs, targets = source.batch(x, None, chosen, start, noise, all_labels(classes), training=False)
            loss = _mean_loss(ask, inputs.numpy(), targets, classes)
            totals += len(chosen) * np.array([loss, np.exp(loss)])
            count += len(chosen)
    loss, perplexity = totals / count
    return {"loss": float(loss), "perplexity": float(perplexity)}


def _mean_loss(ask, inputs, targets, classes):
    """The mean cross-entropy over all positions, in requests that the model allows."""
    rows = max(most_words(classes) // inputs.shape[1], 1)
    losses = [
        softmax_cross_entropy(
            tf.constant(ask(token_ids=inputs[first : first + rows])["logits"]), targets[first : first + rows]
        )
        for first in range(0, len(inputs), rows)
    ]
    return float(np.mean(np.concatenate(losses), dtype=np.float64))


def examples(process: LearningProcess, count: int = 200) -> Iterator[dict[str, np.ndarray]]:
    """Yields single training examples as a client of the model sends them: `{input: array}`."""
    x = process.dataset.train.x[:count]
    if process.dataset.kind == "images":
        yield from ({"image": pixels(one[None])} for one in x)
        return
    segment = text.segment_of(process, x)
    yield from ({"token_ids": one[None, :segment]} for one in x)


def check_answers(process: LearningProcess, model: keras.Model, ask: Callable, name: str, exact: bool = True) -> float:
    """Compares the logits of an exported model with those of the Keras model that it was made of.

    Args:
        process: What the model is of.
        model: The Keras model.
        ask: As `measure` takes it.
        name: Of what was exported, for the message.
        exact: Whether a large difference is refused; NaN is in any case.

    Returns:
        The largest difference, as a share of the largest logit where that is above 1.

    Raises:
        BadInput: It is too large.
    """
    test = process.dataset.test.x[:32]
    if process.dataset.kind == "images":
        found, inputs = ask(image=pixels(test))["logits"], images.model_inputs(process, tf.constant(test))
    else:
        inputs = test[:4, : text.segment_of(process, test)]
        found = ask(token_ids=inputs)["logits"]
    wanted = np.asarray(model(inputs, training=False))
    gap = float(np.max(np.abs(found - wanted)) / max(1.0, np.max(np.abs(wanted))))
    if not gap <= (TOLERANCE if exact else np.inf):
        raise BadInput(
            f"{name} answers other than the model that it was made of, so it was removed; the largest difference of "
            f"logits must be at most {TOLERANCE:g} of the largest one. Received: {gap:.2g}"
        )
    return gap
