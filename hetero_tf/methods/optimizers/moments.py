"""The step that adam and adamw share; they differ in their weight decay."""

import tensorflow as tf

SLOTS = ("first_moment", "second_moment")


def adam_step(
    weights: tf.Tensor,
    gradients: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    rate: tf.Tensor,
    count: tf.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`m = beta1 * m + (1 - beta1) * g`, `v = beta2 * v + (1 - beta2) * g^2`, `w - rate * M / (sqrt(V) + epsilon)`.

    `M = m / (1 - beta1^t)` and `V = v / (1 - beta2^t)` correct the bias of the zero start; t counts the client's steps
    from 1. t is equal for all entries, including those that were frozen in some steps.

    Args:
        weights, gradients, slots, rate, count: As in `step`.
    """
    steps = tf.cast(count + 1, weights.dtype)[:, None]
    first = beta1 * slots[0] + (1 - beta1) * gradients
    second = beta2 * slots[1] + (1 - beta2) * tf.square(gradients)
    scale = tf.sqrt(second / (1 - beta2**steps)) + epsilon
    return weights - rate * (first / (1 - beta1**steps)) / scale, (first, second)
