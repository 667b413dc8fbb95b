"""FedYogi: like FedAdam, but the mean square changes by a bounded amount per round."""

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
    beta1: Share = 0.9,
    beta2: Share = 0.99,
    adaptivity: Positive = 1e-3,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`v = v - (1 - beta2) * d^2 * sign(v - d^2)` inside the step of `adaptive`, d = mean - old.

    The bias is not corrected, and v starts at 0, so the first round equals that of FedAdam.

    Args:
        learning_rate: length of a step if all changes agree.
        beta1: decay rate of the mean change.
        beta2: v changes by `1 - beta2` times the squared change in each round.
        adaptivity: added to the root of v; a large value approaches server momentum.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), algorithm 2.
    """

    def accumulate(second, square):
        return second - (1 - beta2) * square * tf.sign(second - square)

    return servers.adaptive_step(old, mean, coverage, slots, accumulate, learning_rate, beta1, adaptivity)
