"""Adam: steps scaled by moving averages of the gradients and of their squares."""

import tensorflow as tf

from hetero_tf.base.constraints import Epsilon, NotNegative, Share
from hetero_tf.methods import optimizers

SLOTS = optimizers.MOMENTS


def step(
    weights: tf.Tensor,
    gradients: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    rate: tf.Tensor,
    count: tf.Tensor,
    *,
    beta1: Share = 0.9,
    beta2: Share = 0.999,
    epsilon: Epsilon = 1.0e-8,
    weight_decay: NotNegative = 0.0,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`g = gradient + weight_decay * w` inside the step of `moments`, as PyTorch's Adam does it.

    Args:
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.
        epsilon: added to the root of the mean squared gradient.
        weight_decay: L2 factor, added to the clipped gradient and scaled with it.

    Reference: Kingma and Ba 2015 (arXiv 1412.6980), algorithm 1.
    """
    gradients = gradients + weight_decay * weights
    return optimizers.adam_step(weights, gradients, slots, rate, count, beta1, beta2, epsilon)
