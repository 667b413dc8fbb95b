"""Report of `describe`: costs of a recipe at every level, split of its data, and units that each level trains."""

from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.initial_weights import first_weights
from hetero_tf.planning.selection import reads_state
from hetero_tf.reports.describe.fleet import fleet_report
from hetero_tf.reports.describe.loads import has_unequal_loads, level_loads
from hetero_tf.reports.describe.output import Description, to_json, to_text
from hetero_tf.run import notes
from hetero_tf.run.learning_process import LearningProcess

__all__ = ["Description", "describe", "to_json", "to_text"]


def describe(process: LearningProcess, replicas: int = 1) -> Description:
    """Describe the costs of a learning process and the split of its data.

    Args:
        process: A learning process without replicas.
        replicas: Number of processes or devices that would share each round.

    Raises:
        InputError: The initial weights of the recipe are invalid.
    """
    if process.recipe.model.initial_weights is not None:
        first_weights(process.recipe, process.family)
    recipe, dataset, partition, family = process.recipe, process.dataset, process.partition, process.family
    example, levels, loads = tuple(process.example_shape), process.costs_of(recipe.levels.widths), None
    if has_unequal_loads(family):
        examples_per_client = float(partition.train.sizes.mean()) * len(process.batching.starts)
        loads = level_loads(LevelCosts(family, example, family.classes), levels, examples_per_client)
    # Without training there is no state for a selection to read.
    cohort = range(recipe.round.clients) if reads_state(recipe) else None
    return Description(
        recipe=recipe.name,
        example=example,
        classes=dataset.classes,
        levels=levels,
        mix=recipe.levels.divided(1),
        labels=partition.label_mask.sum(axis=1),
        split=partition.summary(dataset.strata[0]),
        source=dataset.source,
        targets=dataset.targets,
        stand_in_for=dataset.stand_in_for,
        engine=process.engine_report(),
        loads=loads,
        fleet=None if recipe.fleet is None else fleet_report(process),
        data=tuple(notes.data_description(process)),
        warnings=tuple(notes.warnings(process)),
        replica_shares=process.replica_shares(process.plan(0, cohort), replicas) if replicas > 1 else (),
    )
