"""FedDyn, client side: a proximal term, and a linear term that counteracts the drift of earlier rounds."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive

REMEMBERS = True
READS = ()
REQUIRES = {"round.server": "dynamic"}


def correct(
    weights: tf.Tensor, start: tf.Tensor, memory: tf.Tensor, slots: tuple[tf.Tensor, ...], *, alpha: Positive = 0.1
) -> tf.Tensor:
    """`-memory + alpha * (weights - start)`, the gradient of `-<memory, weights> + alpha / 2 * |weights - start|^2`.

    The server uses `dynamic` with the same alpha.

    Args:
        alpha: strength of the regularisation; must equal the server's.

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
    """`memory - alpha * (weights - start)`: the gradient of the plain loss at a minimum of the regularised loss.

    Args:
        alpha: see `correct`.
    """
    return memory - alpha * (weights - start)
