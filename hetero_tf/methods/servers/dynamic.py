"""FedDyn, server side: accumulates the drift of the clients and subtracts it."""

import tensorflow as tf

from hetero_tf.base.constraints import Positive
from hetero_tf.methods.servers import where_covered

SLOTS = ("drift",)
REQUIRES = {"client.correction": "dynamic", "client.correction.alpha": "round.server.alpha"}
CONFLICTS = {
    "the server counts clients": {"round.weighting": "samples"},
    "the server reads the drift of all clients from their mean": {"round.merge": True},
}


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

    h starts at 0. `coverage / registered` is the share of clients that cover an entry, so the merge must weight every
    client with 1. Clients use the correction `dynamic` with the same alpha.

    Args:
        alpha: strength of the regularisation; must equal the clients'.

    Reference: Acar et al. 2021 (arXiv 2111.04263), entry by entry as DepthFL does it (ICLR 2023).
    """
    drift = slots[0] - alpha * (coverage / registered) * (mean - old)
    return where_covered(coverage, (mean - drift / alpha, drift), (old, *slots))
