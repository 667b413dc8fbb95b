"""What a device can train by itself."""

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import whole
from hetero_tf.models.family import level_of, outline
from hetero_tf.process.learning_process import LearningProcess


def check_trainable(process: LearningProcess, level: str) -> None:
    """Refuses what a device cannot train: it takes plain local steps of the whole sub-model, and knows three inputs.

    Raises:
        InputError: Names the first key of the recipe that asks for more.
    """
    recipe, family, algorithm = process.recipe, process.family, process.parts.algorithm
    stages = family.stages.get(level, ())
    (stage, *more) = stages or (None,)
    reads_logits = registry.find("couplings", recipe.client.coupling.name).READS_LOGITS
    asked = {
        f"levels.mix (level {level} is not in it)": stage is None,
        "levels.members": recipe.levels.ensemble is not None,
        f"client.stages: {recipe.client.stages.name}": bool(more)
        or family.drawn
        or not _is_whole(family, level, stage),
        f"client.coupling: {recipe.client.coupling.name}": reads_logits,
        "client.correction": algorithm.correct is not None,
        "client.update": algorithm.update is not None,
        "round.mask": algorithm.masks is not None,
        "round.personal": bool(recipe.round.personal),
        f"precision: {recipe.precision}": recipe.precision != "float32",
        f"input: {recipe.input.name}": recipe.input.name not in ("images", "masked_text", "table"),
    }
    for key, too_much in asked.items():
        if too_much:
            raise InputError(
                "--format litert_train: a device takes plain local steps of its level's whole sub-model in float32, on "
                f"images, a table or masked text. Received: {key}"
            )


def _is_whole(family, level, stage):
    """Whether a stage trains every unit of a level's sub-model on one route."""
    if stage is None or stage.routes != (family.route(level),):
        return False
    return stage.trained >= whole(outline(family.recipe), level_of(family.recipe, level))[1]
