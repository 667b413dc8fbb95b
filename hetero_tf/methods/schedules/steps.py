"""The learning rate falls by a factor after given rounds."""


def multiplier(round, *, at: tuple, factor: float = 0.1):
    """`factor` to the power of the number of entries of `at` that are over.

    Args:
        at: counts of rounds, rising; with at [100], rounds 1 to 100 have the full rate and 101 the first lower one.
        factor: multiplies the learning rate at each of them.
    """
    return factor ** sum(round >= count for count in at)
