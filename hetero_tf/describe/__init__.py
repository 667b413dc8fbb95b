"""The report of `describe`: what a recipe costs at every level, how its data are split, and who trains what."""

from hetero_tf.accounting.levels import Costs
from hetero_tf.describe.costs import level_costs
from hetero_tf.describe.description import Description
from hetero_tf.describe.loads import is_divided, level_loads
from hetero_tf.describe.tables import to_json, to_text
from hetero_tf.process import LearningProcess
from hetero_tf.rounds.start import first_weights

__all__ = ["Description", "describe", "to_json", "to_text"]


def describe(process: LearningProcess) -> Description:
    """Describes what a learning process costs, with the summary of its split.

    Raises:
        BadInput: The initial weights of the recipe are refused, as a training would refuse them.
    """
    if process.recipe.model.initial_weights is not None:
        first_weights(process.recipe, process.family)
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
