"""Server SGD: a step from the old weights towards the merged ones."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative
from hetero_tf.methods.servers import where_covered

SLOTS = ()


def apply(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    *,
    registered,
    learning_rate: NotNegative = 1.0,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`old + learning_rate * (mean - old)` on covered entries.

    Args:
        learning_rate: step size towards the merged weights; 0 changes nothing, 1 equals replace up to rounding.

    Reference: Reddi et al. 2021 (arXiv 2003.00295), FedAvg as server SGD.
    """
    return where_covered(coverage, (old + learning_rate * (mean - old),), (old,))
