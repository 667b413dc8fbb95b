"""The step that adam, yogi and adagrad share; they differ in how they accumulate squares.

Reference: Reddi et al. 2021, "Adaptive federated optimization" (arXiv 2003.00295), algorithm 2.
"""

from collections.abc import Callable

import tensorflow as tf

from hetero_tf.methods.servers.covered import where_covered

SLOTS = ("first_moment", "second_moment")


def adaptive_step(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    accumulate: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    learning_rate: float,
    beta1: float,
    adaptivity: float,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`m = beta1 * m + (1 - beta1) * d`, `v = accumulate(v, d^2)`, then `old + learning_rate * m / (sqrt(v) + tau)`.

    d is `mean - old`, tau the adaptivity. As in the paper the bias is not corrected. m and v start at 0. The paper
    starts v at tau^2 or above, so the first steps here are longer if changes are small compared with tau.

    Args:
        accumulate: `(v, d^2) -> v`.
    """
    change = mean - old
    first = beta1 * slots[0] + (1 - beta1) * change
    second = accumulate(slots[1], tf.square(change))
    weights = old + learning_rate * first / (tf.sqrt(second) + adaptivity)
    return where_covered(coverage, (weights, first, second), (old, *slots))
