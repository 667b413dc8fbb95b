"""Learning rate over the rounds: `multiplier(round, *, options) -> float` on the recipe's rate; round 0 first."""
