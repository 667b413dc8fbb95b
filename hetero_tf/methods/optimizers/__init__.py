"""Optimizers of local steps.

`step(weights, gradients, slots, rate, count, *, options) -> (weights, slots)`. `weights` and `gradients` are the
clients' trainable values and their clipped gradients, [K, P], one row per client. `slots` are tensors of the same
shape, one per name in the module's `SLOTS`, zeros at the first step of every round. `rate` is the learning rate, a
scalar. `count`, int32 [K], is the number of steps that each client has finished in this round. A step must be
elementwise. Entries that a stage freezes keep their weights and slots; the engine ignores the result for them.
"""

import tensorflow as tf

MOMENTS = ("first_moment", "second_moment")


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
