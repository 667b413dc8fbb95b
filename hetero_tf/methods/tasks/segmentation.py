"""One label for each pixel of an image."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from hetero_tf.methods.tasks import Task, identity

TARGETS = "label_map"
LOSS = "masked_cross_entropy"
TEST_LOSS = "cross_entropy"
METRICS = ("mean_iou", "accuracy")
CUTS_LABELS = False
UNIT = "%"


def task() -> Task:
    """Return the task; the outputs are logits [..., height, width, classes]."""
    return Task(identity, identity, predict, answer, prediction_name="class")


def predict(outputs: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return "logits" and "probabilities" [n, height, width, classes], and "class" int32 [n, height, width]."""
    best = tf.where(valid[:, None, None], tf.argmax(outputs, -1, output_type=tf.int32), -1)
    return {"logits": outputs, "probabilities": tf.nn.softmax(outputs), "class": best}


def answer(prediction: dict[str, np.ndarray], names: Sequence[str]) -> list[list]:
    """Return `[class, percent of the pixels]` of the classes in the image, the largest first."""
    shares = np.bincount(prediction["class"].reshape(-1), minlength=len(names)) / prediction["class"].size
    return [[names[label], 100 * float(shares[label])] for label in np.argsort(-shares, kind="stable") if shares[label]]
