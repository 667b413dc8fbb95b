"""Cosine decay of the learning rate to zero."""

import math

from hetero_tf.base.constraints import Count


def multiplier(round: int, *, rounds: Count) -> float:
    """`(1 + cos(pi * round / rounds)) / 2`, zero from `rounds` on.

    Args:
        rounds: round in which the rate reaches zero.

    Reference: Loshchilov and Hutter 2017 (arXiv 1608.03983), without restarts.
    """
    return (1 + math.cos(math.pi * min(round / rounds, 1.0))) / 2
