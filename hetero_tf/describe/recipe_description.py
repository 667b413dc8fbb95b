"""Result of `describe`."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.describe.loads import Loads
from hetero_tf.models.costs.cost_report import LevelCost


@dataclass(frozen=True)
class Description:
    """Costs of a recipe.

    Attributes:
        recipe: Name of the recipe.
        example: Shape of one input.
        classes: Number of labels, or words of the vocabulary.
        levels: `{level: LevelCost}`, all widths of the recipe.
        mix: `{level: share of the clients}`; the sum is 1, and the first level is that of the global model.
        labels: int [clients], number of labels of each client.
        split: Summary of the partition; None if unknown.
        source: Source of the data, or None.
        stand_in_for: The data set that is replaced by a stand-in, or None.
        engine: Output of `rounds.engine.report`, or None without data.
        replica_shares: `(clients, share of the operations)` of each process or device in the first round; empty
            without replicas.
        loads: `loads.Loads` if the levels differ in more than their widths, else None.
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
    replica_shares: tuple[tuple[int, float], ...] = ()
