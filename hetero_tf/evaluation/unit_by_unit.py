"""Prediction with the weights of one unit in memory at a time, for devices that cannot hold a full model."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import is_seed


def predict_unit_by_unit(
    family: ModelFamily, level: str, values: Mapping[str, np.ndarray | tf.Tensor], inputs: np.ndarray | tf.Tensor
) -> tf.Tensor:
    """Return the logits of a level's model, bit-equal to those of the full model.

    Args:
        family: The models of all levels.
        level: Name of the level.
        values: All weights by path, such as `{v.path: v.numpy() for v in model.weights}` of the result of
            `process.network`. Each is read when its unit runs, so they may be in a file, such as one of `np.savez`.
        inputs: Of the model: [batch, height, width, channels], or tokens [batch, positions].

    Raises:
        InputError: The recipe predicts by the mean of several exits, which must all be in memory.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), "memory-efficient inference".
    """
    if family.recipe.evaluate.exits == "mean" and len(family.route(level).exits) > 1:
        raise InputError("predict_unit_by_unit uses only the last exit of a model. Received: evaluate.exits='mean'")
    count = family.recipe.levels.members_of(level)
    logits = [_logits(family, level, member, values, inputs) for member in (range(count) if count else (None,))]
    return logits[0] if len(logits) == 1 else tf.add_n(logits) / len(logits)


def _logits(family, level, member, values, outputs):
    # Each unit's model is built, run and released before the next one.
    for model in family.unit_models(level, member):
        for variable in model.weights:
            if not is_seed(variable):
                variable.assign(values[variable.path])
        outputs = model(outputs, training=False)
    return outputs
