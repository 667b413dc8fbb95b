"""FedDyn's client: a spring back to the start, and a pull against what it drifted away by in its earlier rounds."""

from hetero_tf.base.constraints import Positive

REMEMBERS = True
READS = ()


def correct(weights, start, memory, slots, *, alpha: Positive = 0.1):
    """`-memory + alpha * (weights - start)`, the gradient of `-<memory, weights> + alpha / 2 * |weights - start|^2`.

    The server uses `dynamic` with the same alpha.

    Args:
        alpha: strength of the regularisation; the same as the server's.

    Reference: Acar et al. 2021 (arXiv 2111.04263), algorithm 1.
    """
    return alpha * (weights - start) - memory


def remember(memory, weights, start, slots, steps, rate, *, alpha: Positive = 0.1):
    """`memory - alpha * (weights - start)`: at a minimum of the regularised loss, its gradient without the terms above.

    Args:
        alpha: as that of `correct`.
    """
    return memory - alpha * (weights - start)
