"""Step decay: the learning rate is multiplied by a factor after the listed rounds."""

from hetero_tf.base.constraints import Count, Positive

INCREASING = ("at",)


def multiplier(round: int, *, at: tuple[Count, ...], factor: Positive = 0.1) -> float:
    """`factor` to the power of the number of entries of `at` that have passed.

    Args:
        at: ascending numbers of rounds; with [100], rounds 1 to 100 have the full rate and round 101 the first lower
            one.
        factor: factor of the learning rate at each of them.
    """
    return factor ** sum(round >= count for count in at)
