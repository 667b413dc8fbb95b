"""FedAdagrad: steps are scaled by the sum of all squared changes."""

import operator

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Positive, Share
from hetero_tf.methods import servers

SLOTS = servers.MOMENTS


def apply(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    *,
    registered,
    learning_rate: NotNegative = 0.01,
    beta1: Share = 0.0,
    adaptivity: Positive = 1e-3,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`v = v + d^2` inside the step of `adaptive`, d = mean - old.

    The sum starts at 0. With beta1 = 0 the numerator is the change itself.

    Args:
        learning_rate: length of the first step.
        beta1: decay rate of the mean change.
        adaptivity: added to the root of the sum of squares; a large value approaches server momentum.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2.
    """
    return servers.adaptive_step(old, mean, coverage, slots, operator.add, learning_rate, beta1, adaptivity)
