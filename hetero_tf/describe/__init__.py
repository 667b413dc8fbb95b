"""The report of `describe`: what a recipe costs at every level, how its data are split, and who trains what."""

from dataclasses import dataclass

import numpy as np

from hetero_tf.accounting.levels import Costs
from hetero_tf.describe.costs import LevelCost, level_costs
from hetero_tf.describe.loads import Loads, is_divided, level_loads
from hetero_tf.describe.tables import to_json, to_text
from hetero_tf.process import LearningProcess

__all__ = ["Description", "describe", "to_json", "to_text"]


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


def describe(process: LearningProcess) -> Description:
    """Describes what a learning process costs, with the summary of its split."""
    recipe, dataset, partition, family = process.recipe, process.dataset, process.partition, process.family
    example, labels = process.example_shape, partition.label_mask.sum(axis=1)
    levels = level_costs(family, example, labels, min(recipe.client.batch_size, int(partition.train.sizes.max())))
    loads = None
    if is_divided(family):
        pieces = float(partition.train.sizes.mean()) * len(process.input.starts(dataset.train.x))
        loads = level_loads(Costs(family, example, dataset.classes), levels, pieces)
    return Description(
        recipe=recipe.name,
        example=tuple(example),
        classes=dataset.classes,
        levels=levels,
        mix=recipe.levels.divided(1),
        labels=labels,
        split=partition.summary(dataset.train.labels),
        source=dataset.source,
        stand_in_for=dataset.stand_in_for,
        engine=process.engine_report(),
        loads=loads,
    )
