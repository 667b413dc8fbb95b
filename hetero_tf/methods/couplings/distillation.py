"""Distances between the class distributions of two outputs, per example."""

import tensorflow as tf


def log_softmax(logits: tf.Tensor) -> tf.Tensor:
    """Return the logarithm of the softmax over the last axis."""
    # Not tf.nn.log_softmax: oneDNN's exponentials lose digits, see `objectives.cross_entropy`.
    shifted = logits - tf.stop_gradient(tf.reduce_max(logits, -1, keepdims=True))
    return shifted - tf.math.log(tf.reduce_sum(tf.exp(shifted), -1, keepdims=True))


def teacher(logs: tf.Tensor, floor: float = 0.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the teacher's probabilities `exp(logs) + floor` and their logarithms, both without gradient.

    Args:
        logs: Result of `log_softmax`.
        floor: Added to every probability. The sum then exceeds 1 and is not normalised.
    """
    logs = tf.stop_gradient(logs)
    if not floor:
        return tf.exp(logs), logs
    probabilities = tf.exp(logs) + floor
    return probabilities, tf.math.log(probabilities)


def divergence(taught: tuple[tf.Tensor, tf.Tensor], logs: tf.Tensor) -> tf.Tensor:
    """Return the Kullback-Leibler divergence `sum over c of q_c (log q_c - logs_c)` of every example.

    Args:
        taught: `(q, log q)` of the teacher, see `teacher`.
        logs: `log_softmax` of the student.
    """
    probabilities, log_probabilities = taught
    return tf.reduce_sum(probabilities * (log_probabilities - logs), -1)


def soft_cross_entropy(taught: tuple[tf.Tensor, tf.Tensor], logs: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy `-sum over c of q_c logs_c` of every example; arguments as in `divergence`."""
    return -tf.reduce_sum(taught[0] * logs, -1)
