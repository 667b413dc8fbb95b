"""FedYogi: like FedAdam, but the squares grow and shrink by a bounded amount."""

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
    beta1: Share = 0.9,
    beta2: Share = 0.99,
    adaptivity: Positive = 1e-3,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`v = v - (1 - beta2) * d^2 * sign(v - d^2)` inside the step of `adaptive`, d = mean - old.

    Without bias correction, and v starts at 0, so that the first round is that of FedAdam.

    Args:
        learning_rate: length of a step where all changes agree.
        beta1: share of the mean change that each round keeps.
        beta2: 1 - beta2 of a squared change is what the squares move by.
        adaptivity: added to the root of the squares; the larger, the more it is server momentum.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2.
    """

    def accumulate(second, square):
        return second - (1 - beta2) * square * tf.sign(second - square)

    return adaptive.adaptive_step(old, mean, coverage, slots, accumulate, learning_rate, beta1, adaptivity)
