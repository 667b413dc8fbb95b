"""Learning rate schedules: `multiplier(round, *, options) -> float`, the factor of the recipe's rate; rounds from 0."""
