"""The learning rate falls by a factor after given rounds."""

from hetero_tf.base.constraints import Count, Positive


def multiplier(round: int, *, at: tuple[Count, ...], factor: Positive = 0.1) -> float:
    """`factor` to the power of the number of entries of `at` that are over.

    Args:
        at: counts of rounds, rising; with at [100], rounds 1 to 100 have the full rate and 101 the first lower one.
        factor: multiplies the learning rate at each of them.
    """
    return factor ** sum(round >= count for count in at)
