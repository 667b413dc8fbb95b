"""Which recipes devices can play."""

from hetero_tf.base.errors import BadInput
from hetero_tf.evaluation.calibration import statistics_paths
from hetero_tf.process import LearningProcess


def check_deployable(process: LearningProcess) -> None:
    """Refuses what devices cannot do: they get values, take local steps, return values and keep nothing.

    Raises:
        BadInput: Names the first key of the recipe that asks for more.
    """
    recipe, parts = process.recipe, process.parts
    client, algorithm = recipe.client, parts.algorithm
    queries = bool(statistics_paths(process.evaluator.global_model))
    chosen, best = process.chosen_by, f"evaluate.best: {process.chosen_by}"
    keeps = "what a device keeps between rounds would be lost; take another method"
    asked = {
        "levels.assignment: dynamic": (
            recipe.levels.assignment == "dynamic" and len(recipe.levels.names) > 1,
            "a device has one level; set levels.assignment=fixed",
        ),
        "evaluate.statistics: pooled": (
            queries and recipe.evaluate.statistics == "pooled",
            "the server has no examples of its devices; set evaluate.statistics=clients",
        ),
        "availability": (recipe.availability.is_limited, "devices drop out by themselves; leave the key out"),
        "levels.members": (recipe.levels.ensemble is not None, "an ensemble is not sent; take another method"),
        "round.personal": (bool(recipe.round.personal), keeps),
        "round.mask": (algorithm.masks is not None, "masks of single entries are not sent; take another method"),
        f"client.correction: {client.correction.name if client.correction else None}": (
            algorithm.remember is not None or bool(algorithm.read_slots),
            keeps,
        ),
        f"client.stages: {client.stages.name}": (bool(parts.engine.peers), keeps),
        f"precision: {recipe.precision}": (recipe.precision != "float32", "devices count in float32"),
        "evaluate.fine_tune.epochs": (bool(recipe.evaluate.fine_tune.epochs), "the server trains nobody; set it to 0"),
        "evaluate.levels: all": (
            recipe.evaluate.levels == "all",
            "only the global model is measured; set it to global",
        ),
        best: (not chosen.startswith("global_"), "the server measures the global model on the test set alone"),
    }
    for key, (too_much, reason) in asked.items():
        if too_much:
            raise BadInput(f"recipe {recipe.name!r} cannot be deployed on devices: {reason}. Received: {key}")
