"""AdamW: Adam whose weight decay shrinks the weights directly."""

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
    weight_decay: NotNegative = 0.01,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`w = w - rate * weight_decay * w`, then the step of `moments`, as PyTorch's AdamW does it.

    Args:
        beta1: decay rate of the mean gradient.
        beta2: decay rate of the mean squared gradient.
        epsilon: added to the root of the mean squared gradient.
        weight_decay: share of the weights that a step with learning rate 1 subtracts, independent of the gradient.

    Reference: Loshchilov and Hutter 2019 (arXiv 1711.05101), algorithm 2 with the decay multiplied by the rate.
    """
    shrunk = weights * (1 - rate * weight_decay)
    return optimizers.adam_step(shrunk, gradients, slots, rate, count, beta1, beta2, epsilon)
