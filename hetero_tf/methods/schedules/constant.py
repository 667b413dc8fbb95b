"""The recipe's learning rate in every round."""


def multiplier(round: int) -> float:
    """Always 1."""
    return 1.0
