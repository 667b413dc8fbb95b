"""Predicts with the weights of one unit in memory at a time, for devices that cannot hold a whole model."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import is_seed


def predict_unit_by_unit(
    family: ModelFamily, level: str, values: Mapping[str, np.ndarray | tf.Tensor], inputs: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Returns the logits of a level's model, of the same bits as those of the whole model.

    Args:
        family: The models of all levels.
        level: Name of the level.
        values: Those of all weights by path, such as `{v.path: v.numpy() for v in model.weights}` of the model that
            `process.network` gives. Each is asked for when its unit is next, so they may lie in a file, such as one of
            `np.savez`.
        inputs: What the model takes: [batch, height, width, channels], or tokens [batch, positions].

    Raises:
        InputError: The recipe predicts by the mean of several exits, which must all be kept.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """
    if family.recipe.evaluate.exits == "mean" and len(family.route(level).exits) > 1:
        raise InputError("predict_unit_by_unit takes the last exit of a model. Received: evaluate.exits='mean'")
    count = family.recipe.levels.members.get(level)
    logits = [_logits(family, level, member, values, inputs) for member in (range(count) if count else (None,))]
    return logits[0] if len(logits) == 1 else tf.add_n(logits) / len(logits)


def _logits(family, level, member, values, handed_on):
    for model in family.unit_models(level, member):
        for variable in model.weights:
            if not is_seed(variable):
                variable.assign(values[variable.path])
        handed_on = model(handed_on, training=False)
    return handed_on
