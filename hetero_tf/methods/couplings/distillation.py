"""Distances between the distributions of two outputs, summed over the classes, for every example."""

import tensorflow as tf


def log_softmax(logits: tf.Tensor) -> tf.Tensor:
    """Logarithms of the softmax over the last axis."""
    # Not tf.nn.log_softmax: oneDNN's exponentials lose digits, see `objectives.cross_entropy`.
    shifted = logits - tf.stop_gradient(tf.reduce_max(logits, -1, keepdims=True))
    return shifted - tf.math.log(tf.reduce_sum(tf.exp(shifted), -1, keepdims=True))


def teacher(logs: tf.Tensor, floor: float = 0.0) -> tuple[tf.Tensor, tf.Tensor]:
    """The probabilities `exp(logs) + floor` that others learn from and their logarithms, both without gradient.

    Args:
        logs: As `log_softmax` gives them.
        floor: Added to every probability; the sum is then above 1 and is left so.
    """
    logs = tf.stop_gradient(logs)
    if not floor:
        return tf.exp(logs), logs
    raised = tf.exp(logs) + floor
    return raised, tf.math.log(raised)


def divergence(taught: tuple[tf.Tensor, tf.Tensor], logs: tf.Tensor) -> tf.Tensor:
    """Kullback-Leibler divergence `sum over c of q_c (log q_c - logs_c)` of every example.

    Args:
        taught: `(q, log q)` of the output that is learned from.
        logs: `log_softmax` of the output that learns.
    """
    probabilities, known = taught
    return tf.reduce_sum(probabilities * (known - logs), -1)


def soft_cross_entropy(taught: tuple[tf.Tensor, tf.Tensor], logs: tf.Tensor) -> tf.Tensor:
    """Cross-entropy `-sum over c of q_c logs_c` of every example; arguments as those of `divergence`."""
    return -tf.reduce_sum(taught[0] * logs, -1)
