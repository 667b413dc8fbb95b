"""Fine-tuning of client models before their local test: the recipe of its round.

Reference: FedBABU (Oh et al., ICLR 2022, arXiv 2106.06042). Clients train and send the body while the head is frozen.
Before its local test, each client fine-tunes the head, the body or both on its training examples.
"""

import dataclasses

from hetero_tf.base.constraints import Plugin
from hetero_tf.recipe.schema import FineTune, Recipe


def tuned_units(recipe: Recipe) -> frozenset[str]:
    """Return the units that fine-tuning trains."""
    named, units = recipe.evaluate.fine_tune.units, frozenset(spec.unit for spec in recipe.model.layers)
    return units if "all" in named else units & frozenset(named)


def fine_tuning(recipe: Recipe, clients: int) -> Recipe:
    """Return the recipe of the round that fine-tunes `clients` clients; all trained units are personal.

    With dynamic assignment, clients are fine-tuned at the global level, at which they are tested.
    """
    tune, tuned_names = recipe.evaluate.fine_tune, tuned_units(recipe)
    frozen = tuple(unit for unit in recipe.model.frozen if unit not in tuned_names)
    levels, optimizer = dataclasses.replace(recipe.levels, idle=()), recipe.optimizer
    if levels.assignment == "dynamic":
        levels = dataclasses.replace(levels, mix={levels.global_level: 1}, assignment="fixed")
    if tune.learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=tune.learning_rate)
    return dataclasses.replace(
        recipe,
        model=dataclasses.replace(recipe.model, frozen=frozen),
        levels=levels,
        fleet=None,
        # Client models are tested with the first channels of the global model.
        round=dataclasses.replace(
            recipe.round,
            clients=clients,
            policy=Plugin("wait"),
            selection=Plugin("uniform"),
            submodel=Plugin("prefix"),
            personal=("all",),
            server=Plugin("replace"),
        ),
        client=dataclasses.replace(recipe.client, epochs=tune.epochs, correction=None, update=None),
        optimizer=optimizer,
        schedule=Plugin("constant"),
        evaluate=dataclasses.replace(recipe.evaluate, fine_tune=FineTune()),
    )
