"""One label for each pixel of an image."""

import tensorflow as tf

from hetero_tf.methods.tasks import Task, identity

TARGETS = "label_map"
LOSS = "masked_cross_entropy"
TEST_LOSS = "cross_entropy"
METRICS = ("mean_iou", "accuracy")
CUTS_LABELS = False


def task() -> Task:
    """Return the task; the outputs are logits [..., height, width, classes]."""
    return Task(identity, identity, predict, prediction_name="class")


def predict(outputs: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return "logits" and "probabilities" [n, height, width, classes], and "class" int32 [n, height, width]."""
    best = tf.where(valid[:, None, None], tf.argmax(outputs, -1, output_type=tf.int32), -1)
    return {"logits": outputs, "probabilities": tf.nn.softmax(outputs), "class": best}
