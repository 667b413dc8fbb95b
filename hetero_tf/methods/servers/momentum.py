"""Server momentum (FedAvgM): each step includes a decaying sum of earlier changes."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Share
from hetero_tf.methods.servers import where_covered

SLOTS = ("velocity",)


def apply(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    *,
    registered,
    learning_rate: NotNegative = 1.0,
    momentum: Share = 0.9,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`v = momentum * v + (mean - old)`, then `old + learning_rate * v`, on covered entries.

    v starts at 0. The new change is not multiplied by `1 - momentum`, so momentum 0 is server SGD.

    Args:
        learning_rate: factor of the velocity.
        momentum: decay rate of the velocity.

    Reference: Hsu et al. 2019 (arXiv 1909.06335).
    """
    velocity = momentum * slots[0] + (mean - old)
    return where_covered(coverage, (old + learning_rate * velocity, velocity), (old, *slots))
