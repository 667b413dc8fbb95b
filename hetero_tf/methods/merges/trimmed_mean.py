"""Trimmed mean: the mean of each entry without its smallest and its largest values."""

from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Range
from hetero_tf.methods.merges import middle_mean

CONFLICTS = {"each client counts once": {"round.weighting": "samples"}}


def aggregate(
    old: tf.Tensor,
    rows: tf.Tensor,
    covered: tf.Tensor,
    weight: tf.Tensor,
    *,
    share: Annotated[float, Range(low=0.0, below=0.5)] = 0.1,
) -> tf.Tensor:
    """Return the mean over the clients that cover an entry, without a share of them at either end.

    The number of clients to leave out is rounded up, because few clients cover an entry of a wide level; one or two
    clients always remain.

    Args:
        share: share of the clients whose values are left out, once of the smallest and once of the largest ones; it
            must be at least the share of clients that send poisoned values.

    Reference: Yin et al. 2018 (arXiv 1803.01498), option II, entry by entry.
    """
    return middle_mean(rows, covered, share)
