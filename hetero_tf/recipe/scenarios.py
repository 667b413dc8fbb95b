"""Named scenarios of budgets: who can hold how much of the model."""

# Budgets of four levels that equally many clients have, largest first. Under `lack` the smallest does not hold the
# first blocks; under `surplus` the largest holds two models. Source: FeDepth (Zhang et al. 2023), section 5.
SCENARIOS = {
    "fair": (1.0, 1 / 2, 1 / 3, 1 / 6),
    "lack": (1.0, 1 / 2, 1 / 6, 1 / 8),
    "surplus": (2.0, 1 / 2, 1 / 3, 1 / 6),
}
