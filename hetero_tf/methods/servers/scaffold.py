"""SCAFFOLD, server side: averages the controls of all clients, and moves towards the merged weights."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative
from hetero_tf.methods.servers import where_covered

SLOTS = ("control",)
REQUIRES = {"client.correction": "scaffold", "client.stages": "joint", "optimizer.name": "sgd", "optimizer.momentum": 0}
CONFLICTS = {"controls change every entry in each step": {"round.mask": True}}


def apply(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    *,
    registered,
    memory_change,
    learning_rate: NotNegative = 1.0,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`c = c + memory_change / registered` and `old + learning_rate * (mean - old)`, on covered entries.

    c and the controls of the clients start at 0. For entries that all clients cover, c is the mean of their controls.

    Args:
        learning_rate: step size towards the merged weights.

    Reference: Karimireddy et al. 2020 (arXiv 1910.06378), algorithm 1, entry by entry like `dynamic`.
    """
    control = slots[0] + memory_change / registered
    return where_covered(coverage, (old + learning_rate * (mean - old), control), (old, *slots))
