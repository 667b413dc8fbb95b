"""FedProx: a proximal term that pulls the weights back to the global weights."""

import tensorflow as tf

from hetero_tf.base.constraints import NotNegative

REMEMBERS = False
READS = ()


def correct(
    weights: tf.Tensor, start: tf.Tensor, memory: tf.Tensor, slots: tuple[tf.Tensor, ...], *, mu: NotNegative
) -> tf.Tensor:
    """`mu * (weights - start)`, the gradient of `mu / 2 * |weights - start|^2`.

    Args:
        mu: weight of the proximal term; 0: none.

    Reference: Li et al. 2020 (arXiv 1812.06127).
    """
    return mu * (weights - start)
