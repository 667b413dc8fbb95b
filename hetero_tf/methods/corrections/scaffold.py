"""SCAFFOLD's client: its steps follow the mean direction of all clients instead of its own."""

import tensorflow as tf

REMEMBERS = True
READS = ("control",)


def correct(weights: tf.Tensor, start: tf.Tensor, memory: tf.Tensor, slots: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """`c - c_i`: the control of the server less that of the client, its memory.

    The server is `scaffold` too, and the optimizer sgd without momentum, since a control stands for a gradient.

    Reference: Karimireddy et al. 2020 (arXiv 1910.06378), algorithm 1.
    """
    return slots[0] - memory


def remember(
    memory: tf.Tensor,
    weights: tf.Tensor,
    start: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    steps: tf.Tensor,
    rate: tf.Tensor,
) -> tf.Tensor:
    """`c_i - c + (start - weights) / (steps * rate)`: the mean gradient of the client's steps, option II."""
    moved = tf.math.divide_no_nan(start - weights, tf.cast(steps, start.dtype)[:, None] * rate)
    return memory - slots[0] + moved
