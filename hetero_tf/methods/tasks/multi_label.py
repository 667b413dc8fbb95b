"""Any number of labels for each example, each present or absent."""

import numpy as np
import tensorflow as tf

from hetero_tf.methods.tasks import Task, identity

TARGETS = "label_set"
LOSS = "masked_sigmoid_cross_entropy"
TEST_LOSS = "sigmoid_cross_entropy"
METRICS = ("micro_f1", "macro_f1", "mean_average_precision")
CUTS_LABELS = False


def task() -> Task:
    """Return the task; the outputs are logits [..., labels], whose sigmoids are the probabilities."""
    return Task(lambda targets: targets.astype(np.float32), identity, predict, index_name="labels")


def predict(outputs: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return "logits" and "probabilities" [n, labels], and "labels" int32 [n, labels], 1 above probability 1/2."""
    labels = tf.where(valid[:, None], tf.cast(outputs > 0, tf.int32), -1)
    return {"logits": outputs, "probabilities": tf.sigmoid(outputs), "labels": labels}
