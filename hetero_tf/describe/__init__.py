"""The report of `describe`: what a recipe costs at every level, how its data are split, and who trains what."""

import dataclasses
from collections.abc import Iterable

from hetero_tf.describe.loads import is_divided, level_loads
from hetero_tf.describe.output import to_json, to_text
from hetero_tf.describe.recipe_description import Description
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.models.initial_weights import first_weights
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.sharing import share_stacks
from hetero_tf.process.costs import process_costs
from hetero_tf.process.learning_process import LearningProcess

__all__ = ["Description", "describe", "to_json", "to_text"]


def describe(process: LearningProcess, replicas: int = 1) -> Description:
    """Describes what a learning process costs, with the summary of its split.

    Args:
        process: The learning process, of one process.
        replicas: How many processes or devices would share each round.

    Raises:
        InputError: The initial weights of the recipe are refused, as a training would refuse them.
    """
    if process.recipe.model.initial_weights is not None:
        first_weights(process.recipe, process.family)
    recipe, dataset, partition, family = process.recipe, process.dataset, process.partition, process.family
    found, loads = _of_levels(process, recipe.levels.widths), None
    if is_divided(family):
        pieces = float(partition.train.sizes.mean()) * len(process.input.starts(dataset.train.x))
        loads = level_loads(Costs(family, found.example, dataset.classes), found.levels, pieces)
    return dataclasses.replace(
        found,
        split=partition.summary(dataset.train.labels),
        source=dataset.source,
        stand_in_for=dataset.stand_in_for,
        engine=process.engine_report(),
        loads=loads,
        dealt=_dealt(process, replicas) if replicas > 1 else (),
    )


def _dealt(process, replicas):
    """How the first round is dealt, see `Description`."""
    plan, stacks = process.plan(0), process.parts.engine.stacks
    packed = pack_rounds([plan], [stack.clients for stack in stacks], process.family.submodel_of)
    work = process.work(plan)
    shared = share_stacks(packed, work, replicas)
    # [cohort]
    of_clients = shared.replicas[0, shared.slots[0] // shared.clients.shape[2]]
    return tuple(
        (int((of_clients == replica).sum()), float(work[of_clients == replica].sum() / work.sum()))
        for replica in range(replicas)
    )


def _of_levels(process, names: Iterable[str]) -> Description:
    """The `Description` of some levels, without what depends on the data."""
    return Description(
        recipe=process.recipe.name,
        example=tuple(process.example_shape),
        classes=process.dataset.classes,
        levels=process_costs(process, names),
        mix=process.recipe.levels.divided(1),
        labels=process.partition.label_mask.sum(axis=1),
    )
