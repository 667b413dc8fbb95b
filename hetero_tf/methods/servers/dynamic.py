"""FedDyn's server: what the clients drift away by is remembered and taken back."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive
from hetero_tf.methods.servers.covered import where_covered

SLOTS = ("drift",)


def apply(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    *,
    registered,
    alpha: Positive = 0.1,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`h = h - alpha * (coverage / registered) * (mean - old)`, then `mean - h / alpha`, on covered entries.

    h starts at 0. The share of clients that cover an entry is their number over that of all clients, so the merge must
    count every client as 1. Clients use the correction `dynamic` with the same alpha.

    Args:
        alpha: strength of the regularisation; the same as the clients'.

    Reference: Acar et al. 2021 (arXiv 2111.04263), entry by entry as DepthFL does it (ICLR 2023).
    """
    drift = slots[0] - alpha * (coverage / registered) * (mean - old)
    return where_covered(coverage, (mean - drift / alpha, drift), (old, *slots))
