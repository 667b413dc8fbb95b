"""Couplings: combine the losses of several outputs of a model (exits, widths, peers) into one.

`couple(losses, logits, targets, round, *, options) -> loss of every example`. `losses` are tensors [K, batch] of the
objective, one per output; `logits` are [K, batch, classes], one per output; `targets` are int32 [K, batch]; `round` is
a scalar int32 that starts at 0. Additional axes between batch and classes (positions of text) are allowed. A loss has
the shape of the targets; the engine averages it per client. Outputs are ordered from the shallowest or narrowest to
the main one. With a single output the result is its loss.

A module with `READS_LOGITS = False` does not read the logits. With True, the label axis of clients is not cut. A module
with `SEPARABLE = True` returns the sum of its results for each single output, so the outputs may take separate steps,
which levels with the same widths share.
"""

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
