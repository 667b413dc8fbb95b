"""FedAdagrad: steps shrink with the sum of all squared changes so far."""

import operator

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Positive, Share
from hetero_tf.methods.servers import adaptive

SLOTS = adaptive.SLOTS


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

    The sum starts at 0. With beta1 at 0 the change itself is the numerator.

    Args:
        learning_rate: length of the first step.
        beta1: share of the mean change that each round keeps.
        adaptivity: added to the root of the squares; the larger, the more it is server momentum.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2.
    """
    return adaptive.adaptive_step(old, mean, coverage, slots, operator.add, learning_rate, beta1, adaptivity)
