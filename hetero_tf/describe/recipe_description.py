"""What `describe` finds out of a recipe."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.describe.loads import Loads
from hetero_tf.models.costs.cost_report import LevelCost


@dataclass(frozen=True)
class Description:
    """The cost of a recipe.

    Attributes:
        recipe: Its name.
        example: Shape of one input.
        classes: Labels, or words of the vocabulary.
        levels: `{level: LevelCost}`, all widths of the recipe.
        mix: `{level: share of the clients}`, adding up to 1; the first level is the global model's.
        labels: int [clients], how many labels each client has.
        split: Summary of the partition, or None where it is not known.
        source: Where the data came from, or None.
        stand_in_for: What they stand in for, or None.
        engine: How clients are computed, as `rounds.engine.report` gives it, or None: that depends on the data too.
        dealt: For each process or device that shares the first round `(clients, share of the operations)`; empty: one
            trains all.
        loads: `loads.Loads` where the levels differ in more than their widths, or None.
    """

    recipe: str
    example: tuple
    classes: int
    levels: dict[str, LevelCost]
    mix: dict
    labels: np.ndarray
    split: dict | None = None
    source: str | None = None
    stand_in_for: str | None = None
    engine: dict | None = None
    loads: Loads | None = None
    dealt: tuple[tuple[int, float], ...] = ()
