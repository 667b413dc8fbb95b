"""The global values before the first round: drawn by the layers, or read from a file or another run."""

from types import SimpleNamespace

import tensorflow as tf

from hetero_tf.models.family import ModelFamily
from hetero_tf.models.initial_weights import read
from hetero_tf.recipe import located
from hetero_tf.recipe.schema import Recipe
from hetero_tf.rounds.layout import initial_values


def first_weights(recipe: Recipe, family: ModelFamily) -> tuple[dict[str, tf.Tensor], str | None]:
    """Returns the global values before the first round by path, and what they were read from; None: all are drawn.

    Raises:
        BadInput: What `model.initial_weights` names cannot be read or does not fit; names file, line and key.
    """
    weights, model = initial_values(family), recipe.model
    if model.initial_weights is None:
        return weights, None
    variables = [
        SimpleNamespace(path=path, shape=tuple(value.shape), dtype=value.dtype.name) for path, value in weights.items()
    ]
    with located(recipe, "model", "initial_weights"):
        arrays, source = read(model.initial_weights, variables, model.reinitialize)
    return weights | {path: tf.constant(value) for path, value in arrays.items()}, source
