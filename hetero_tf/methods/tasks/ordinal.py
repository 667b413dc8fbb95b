"""One of several ordered classes for each example, such as a grade: one output for each threshold between them."""

import numpy as np
import tensorflow as tf

from hetero_tf.methods.tasks import Task

TARGETS = "label"
LOSS_TARGETS = "label_set"
OUTPUTS = "thresholds"
LOSS = "masked_sigmoid_cross_entropy"
TEST_LOSS = "sigmoid_cross_entropy"
METRICS = ("accuracy", "mae", "quadratic_kappa")
CUTS_LABELS = False
ORDERED = True


def task(*, classes=2) -> Task:
    """Return the task; output k is the logit of P(class > k).

    The predicted class is the number of probabilities above 1/2, a median of the classes. The loss of an example is the
    mean binary cross-entropy of its thresholds. A threshold with classes of the client on one side only counts as a
    label that the client lacks.

    Reference: Niu et al., Ordinal Regression with Multiple Output CNN for Age Estimation, CVPR 2016, for the loss and
    the predicted class; Frank and Hall, A Simple Approach to Ordinal Classification, ECML 2001, for the probabilities.
    """
    return Task(
        encode=lambda targets: (targets[:, None] > np.arange(classes - 1)).astype(np.float32),
        decode=lambda outputs: tf.math.log(probabilities(outputs)),
        predict=predict,
        present_outputs=separating_thresholds,
        prediction_scores=prediction_scores,
    )


def probabilities(outputs: tf.Tensor) -> tf.Tensor:
    """Return the probabilities of the classes, [..., classes]: differences of P(class > k), at least 0, with sum 1."""
    exceeds = tf.sigmoid(outputs)
    certain = tf.ones_like(exceeds[..., :1])
    differences = tf.concat([certain, exceeds], -1) - tf.concat([exceeds, tf.zeros_like(certain)], -1)
    # Thresholds are independent outputs, so the probability of a higher one may be larger.
    differences = tf.maximum(differences, 0)
    return differences / tf.reduce_sum(differences, -1, keepdims=True)


def predict(outputs: tf.Tensor, valid: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return "logits" [n, thresholds], "probabilities" [n, classes], and "class" int32 [n]."""
    best = tf.where(valid, tf.math.count_nonzero(outputs > 0, -1, dtype=tf.int32), -1)
    return {"logits": outputs, "probabilities": probabilities(outputs), "class": best}


def separating_thresholds(present: np.ndarray) -> np.ndarray:
    """Return whether each threshold has classes of a client on both sides, bool [..., thresholds].

    Args:
        present: bool [..., classes], the classes of the client.
    """
    below = np.logical_or.accumulate(present, -1)[..., :-1]
    above = np.logical_or.accumulate(present[..., ::-1], -1)[..., -2::-1]
    return below & above


def prediction_scores(outputs: tf.Tensor) -> tf.Tensor:
    """Return positive scores [..., classes] that fall with the distance from the predicted class.

    If absent classes get score 0, the nearest present class has the highest score.
    """
    exceeded = tf.reduce_sum(tf.cast(outputs > 0, outputs.dtype), -1, keepdims=True)
    classes = outputs.shape[-1] + 1
    return classes - tf.abs(exceeded - tf.range(classes, dtype=outputs.dtype))
