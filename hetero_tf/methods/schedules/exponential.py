"""The learning rate falls by a factor after every round."""

from hetero_tf.base.constraints import Positive


def multiplier(round: int, *, factor: Positive) -> float:
    """`factor` to the power of the rounds that are over.

    Args:
        factor: multiplies the learning rate after each round.
    """
    return factor**round
