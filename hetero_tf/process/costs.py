"""Costs of the levels of a learning process."""

from collections.abc import Iterable

from hetero_tf.models.costs.cost_report import LevelCost, costs_to_json, level_costs
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.store.plain_json import finite


def process_costs(process: LearningProcess, levels: Iterable[str]) -> dict[str, LevelCost]:
    """Counts what each of some levels costs, with the labels and the batches of the process's clients."""
    labels = process.partition.label_mask.sum(axis=1)
    batch = min(process.recipe.client.batch_size, int(process.partition.train.sizes.max()))
    return level_costs(process.family, levels, tuple(process.example_shape), labels, batch)


def mix_costs(process: LearningProcess) -> dict:
    """Returns the costs of the mix's levels, ready for JSON: "example", "classes", "levels" and "mix".

    A run keeps it in its folder, so that tables and figures need neither the data nor TensorFlow.
    """
    levels = process.recipe.levels
    costs = costs_to_json(process_costs(process, levels.names), levels.divided(1))
    return finite({"example": tuple(process.example_shape), "classes": process.dataset.classes, **costs})
