"""FedDyn's client: a spring back to the start, and a pull against what it drifted away by in its earlier rounds."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive

REMEMBERS = True
READS = ()


def correct(
    weights: tf.Tensor, start: tf.Tensor, memory: tf.Tensor, slots: tuple[tf.Tensor, ...], *, alpha: Positive = 0.1
) -> tf.Tensor:
    """`-memory + alpha * (weights - start)`, the gradient of `-<memory, weights> + alpha / 2 * |weights - start|^2`.

    The server uses `dynamic` with the same alpha.

    Args:
        alpha: strength of the regularisation; the same as the server's.

    Reference: Acar et al. 2021 (arXiv 2111.04263), algorithm 1.
    """
    return alpha * (weights - start) - memory


def remember(
    memory: tf.Tensor,
    weights: tf.Tensor,
    start: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    steps: tf.Tensor,
    rate: tf.Tensor,
    *,
    alpha: Positive = 0.1,
) -> tf.Tensor:
    """`memory - alpha * (weights - start)`: at a minimum of the regularised loss, its gradient without the terms above.

    Args:
        alpha: as that of `correct`.
    """
    return memory - alpha * (weights - start)
