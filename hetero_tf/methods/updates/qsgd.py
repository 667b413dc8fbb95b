"""QSGD: rounds each value of an update at random to a few bits, without bias."""

from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.base.graph_random import uniform

UNBIASED = True


def update(
    weights: tf.Tensor,
    start: tf.Tensor,
    steps: tf.Tensor,
    key: tf.Tensor,
    *,
    bits: Annotated[int, Range(low=2, high=16)] = 8,
) -> tf.Tensor:
    """Return `start` plus the change rounded to one of the two nearest multiples of `norm / (2^(bits - 1) - 1)`.

    `norm` is the L2 norm of the client's change. The probability of the upper multiple is the distance to the lower
    one, so that the mean is the change.

    Args:
        bits: size of a value with its sign; with 2 each value is -norm, 0 or norm.

    Reference: Alistarh et al. 2017 (arXiv 1610.02132), section 3.1; FedPAQ, Reisizadeh et al. 2020 (arXiv 1909.13014),
    sends the changes of several local steps in this form.
    """
    change = weights - start
    norm, most = tf.norm(change, axis=1, keepdims=True), 2 ** (bits - 1) - 1
    multiples = tf.math.divide_no_nan(most * tf.abs(change), norm)
    lower = tf.floor(multiples)
    draws = tf.cast(uniform(key, [change.shape[1]]), change.dtype)
    rounded = lower + tf.cast(draws < multiples - lower, change.dtype)
    return start + tf.sign(change) * rounded * norm / most


def message_bits(count: float, *, bits: int = 8) -> float:
    """The norm in 32 bits, and `bits` for each value; entropy coding is not assumed."""
    return 32 + count * bits
