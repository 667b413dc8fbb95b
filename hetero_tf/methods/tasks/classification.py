"""One label for each example, or one word for each position of a text."""

import tensorflow as tf

from hetero_tf.methods.tasks import Task, identity

TARGETS = "label"
LOSS = "masked_cross_entropy"
TEST_LOSS = "cross_entropy"
METRICS = ("accuracy",)
CUTS_LABELS = True


def task() -> Task:
    """Return the task; the outputs are logits [..., classes], whose softmax are the probabilities."""
    return Task(identity, identity, predict)


def predict(outputs: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return "logits" and "probabilities" [n, classes], and "class" int32 [n]."""
    best = tf.where(valid, tf.argmax(outputs, -1, output_type=tf.int32), -1)
    return {"logits": outputs, "probabilities": tf.nn.softmax(outputs), "class": best}
