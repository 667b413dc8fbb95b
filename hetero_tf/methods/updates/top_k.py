"""Top-k: sends the largest values of an update, and the rest in later rounds."""

import math
from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Range

UNBIASED = False


def update(
    weights: tf.Tensor,
    start: tf.Tensor,
    steps: tf.Tensor,
    key: tf.Tensor,
    *,
    entries,
    share: Annotated[float, Range(above=0.0, high=1.0)] = 0.01,
    error_feedback: bool = True,
) -> tf.Tensor:
    """Return `start` plus the `ceil(share * entries)` values of the change with the largest magnitude.

    Args:
        share: share of a client's values that are sent.
        error_feedback: store what was left out and add it to the client's next update.

    Reference: Stich et al. 2018 (arXiv 1809.07599), sparsified SGD with memory.
    """
    change, count = weights - start, tf.math.ceil(share * tf.cast(entries, tf.float64))
    # XLA needs a static number of columns: that of a client that sends all of them.
    _, columns = tf.math.top_k(tf.abs(change), math.ceil(share * change.shape[1]))
    largest = tf.gather(change, columns, batch_dims=1)
    is_sent = tf.range(columns.shape[1], dtype=tf.float64) < count[:, None]
    rows = tf.broadcast_to(tf.range(tf.shape(columns)[0])[:, None], tf.shape(columns))
    sent = tf.where(is_sent, largest, tf.zeros_like(largest))
    return start + tf.scatter_nd(tf.stack([rows, columns], 2), sent, tf.shape(change))


def message_bits(count: float, *, share: float = 0.01, error_feedback: bool = True) -> float:
    """32 bits for each value that is sent, and `ceil(log2(count))` for its position."""
    return math.ceil(share * count) * (32 + math.ceil(math.log2(max(count, 1))))
