"""SCAFFOLD, client side: control variates turn local steps towards the mean direction of all clients."""

import tensorflow as tf

REMEMBERS = True
READS = ("control",)
REQUIRES = {"round.server": "scaffold"}


def correct(weights: tf.Tensor, start: tf.Tensor, memory: tf.Tensor, slots: tuple[tf.Tensor, ...]) -> tf.Tensor:
    """`c - c_i`: the control of the server minus that of the client, its memory.

    Needs the server `scaffold` and the optimizer sgd without momentum, because a control represents a gradient.

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
