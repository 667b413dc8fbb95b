"""Exponential decay: the learning rate is multiplied by a factor after every round."""

from hetero_tf.base.constraints import Positive


def multiplier(round: int, *, factor: Positive) -> float:
    """`factor` to the power of the number of finished rounds.

    Args:
        factor: factor of the learning rate after each round.
    """
    return factor**round
