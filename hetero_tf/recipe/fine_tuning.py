"""Fine-tuning before each client's own test: what it does not go with, and the recipe of the round that it is.

Reference: FedBABU (Oh et al., ICLR 2022, arXiv 2106.06042): clients train and send the body while the head stands
still; before its own test each fine-tunes the head, the body or both on its training examples.
"""

import dataclasses

from hetero_tf.base import metrics
from hetero_tf.base.constraints import Plugin
from hetero_tf.recipe.nodes import InvalidValue, show
from hetero_tf.recipe.schema import Availability, FineTune, Recipe


def check_fine_tuning(recipe: Recipe) -> None:
    """Raises `InvalidValue` for the first key that does not go with fine-tuning."""
    tune, path = recipe.evaluate.fine_tune, ("evaluate", "fine_tune")
    if not tune.units:
        raise InvalidValue((*path, "units"), "names no unit to train; name some, or all. Received: []")
    if not tune.epochs:
        return
    if recipe.input.name in metrics.TEXT:
        raise InvalidValue(
            (*path, "epochs"),
            f"must be 0 with the input {recipe.input.name}: text has no test examples of single clients. "
            f"Received: {tune.epochs}",
        )
    stages = recipe.client.stages
    for given, key, reason in (
        (
            "" if stages.name == "joint" else stages.name,
            "client.stages",
            "a client trains its whole model in every step",
        ),
        (recipe.round.mask and recipe.round.mask.name, "round.mask", "a client keeps all entries of its own model"),
        (
            recipe.levels.members and show(recipe.levels.members),
            "levels.members",
            "a client has one network of its own",
        ),
    ):
        if given:
            raise InvalidValue(
                (*path, "epochs"),
                f"must be 0 with {key} {given}: where it is fine-tuned, {reason}. Received: {tune.epochs}",
            )


def tuned_units(recipe: Recipe) -> frozenset[str]:
    """Returns the units that fine-tuning trains."""
    named, units = recipe.evaluate.fine_tune.units, frozenset(spec.unit for spec in recipe.model.layers)
    return units if "all" in named else units & frozenset(named)


def fine_tuning(recipe: Recipe, clients: int) -> Recipe:
    """Returns the recipe of the round that fine-tunes so many clients: everything that they train stays with them.

    A client that draws its level anew each round is fine-tuned at the level that it is tested at, the global one.
    """
    tune, tuned = recipe.evaluate.fine_tune, tuned_units(recipe)
    still = tuple(unit for unit in recipe.model.frozen if unit not in tuned)
    levels, optimizer = dataclasses.replace(recipe.levels, idle=()), recipe.optimizer
    if levels.assignment == "dynamic":
        levels = dataclasses.replace(levels, mix=((levels.global_level, 1),), assignment="fixed")
    if tune.learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=tune.learning_rate)
    return dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, frozen=still),
        levels=levels,
        availability=Availability(),
        # A client is tested with the first channels of the global model.
        round=dataclasses.replace(
            recipe.round, clients=clients, submodel=Plugin("prefix"), personal=("all",), server=Plugin("replace")
        ),
        client=dataclasses.replace(recipe.client, epochs=tune.epochs, correction=None, update=None),
        optimizer=optimizer,
        schedule=Plugin("constant"),
        evaluate=dataclasses.replace(recipe.evaluate, fine_tune=FineTune()),
    )
