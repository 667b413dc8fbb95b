"""Server momentum (FedAvgM): the changes of earlier rounds go on working."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative, Share
from hetero_tf.methods.servers.covered import where_covered

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

    v starts at 0 and the new change is not damped by `1 - momentum`, so momentum 0 is server SGD.

    Args:
        learning_rate: what the velocity is multiplied by.
        momentum: share of the velocity that each round keeps.

    Reference: Hsu et al. 2019 (arXiv 1909.06335).
    """
    velocity = momentum * slots[0] + (mean - old)
    return where_covered(coverage, (old + learning_rate * velocity, velocity), (old, *slots))
