"""The learning rate falls by a factor after every round."""


def multiplier(round, *, factor: float):
    """`factor` to the power of the rounds that are over.

    Args:
        factor: multiplies the learning rate after each round.
    """
    return factor**round
