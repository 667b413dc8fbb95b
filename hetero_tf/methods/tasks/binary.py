"""One of two classes for each example: one output, the logit of the second class."""

import dataclasses

import tensorflow as tf

from hetero_tf.methods.tasks import Task, ordinal

TARGETS = "label"
LOSS_TARGETS = "label_set"
OUTPUTS = "thresholds"
CLASSES = 2
# The masked loss does not train clients with a single class.
LOSS = "sigmoid_cross_entropy"
TEST_LOSS = "sigmoid_cross_entropy"
METRICS = ("accuracy", "roc_auc", "balanced_accuracy")
CUTS_LABELS = False


def task() -> Task:
    """Return the task `ordinal` of two classes; its loss is the binary cross-entropy."""
    return dataclasses.replace(ordinal.task(classes=CLASSES), decode=class_logits)


def class_logits(outputs: tf.Tensor) -> tf.Tensor:
    """Return logits of both classes, [..., 2], without the rounding of `ordinal.probabilities`."""
    return tf.concat([tf.zeros_like(outputs), outputs], -1)
