"""Checks that a LiteRT file can train on a device without this package."""

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import full_route
from hetero_tf.models.family import level_of, outline
from hetero_tf.process.learning_process import LearningProcess


def check_trainable(process: LearningProcess, level: str) -> None:
    """Reject recipes that a device cannot train: it takes plain local steps of a whole sub-model, on three inputs.

    Raises:
        InputError: The recipe needs more; the message names its first such key.
    """
    recipe, family, algorithm = process.recipe, process.family, process.setup.algorithm
    stages = family.stages.get(level, ())
    (stage, *more) = stages or (None,)
    reads_logits = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    unsupported = {
        f"levels.mix (without level {level})": stage is None,
        "levels.members": recipe.levels.ensemble is not None,
        f"client.stages: {recipe.client.stages.name}": bool(more)
        or family.drawn
        or not _trains_all_units(family, level, stage),
        f"client.coupling: {recipe.client.coupling.name}": reads_logits,
        "client.correction": algorithm.correct is not None,
        "client.update": algorithm.update is not None,
        "round.mask": algorithm.masks is not None,
        "round.personal": bool(recipe.round.personal),
        f"precision: {recipe.precision}": recipe.precision != "float32",
        f"input: {recipe.input.name}": recipe.input.name not in ("images", "masked_text", "table"),
    }
    for key, is_used in unsupported.items():
        if is_used:
            raise InputError(
                "--format litert_train: a device can only train the whole sub-model of its level with plain local "
                f"steps in float32, on images, a table or masked text. Received: {key}"
            )


def _trains_all_units(family, level, stage):
    """Return True if a stage trains every unit of a level's sub-model on one route."""
    if stage is None or stage.routes != (family.route(level),):
        return False
    return stage.trained >= full_route(outline(family.recipe), level_of(family.recipe, level))[1]
