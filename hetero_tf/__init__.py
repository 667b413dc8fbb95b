"""hetero_tf: federated learning of one model on unequal devices, from a YAML recipe."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only for type checkers: the package itself imports at once, TensorFlow when it is first needed.
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from keras import Model

    from hetero_tf.process import LearningProcess
    from hetero_tf.recipe.schema import Recipe
    from hetero_tf.run.callbacks import Trained

__version__ = "0.2.0"


def load_recipe(path: "str | Path", overrides: "Sequence[str]" = ()) -> "Recipe":
    """Reads and checks a recipe; see `recipe.load`."""
    from hetero_tf import recipe

    return recipe.load(path, overrides)


def learning_process(recipe: "Recipe | Mapping | str | Path", **options) -> "LearningProcess":
    """Builds the learning process of a recipe; see `process.learning_process`."""
    from hetero_tf import process

    return process.learning_process(recipe, **options)


def train(process: "LearningProcess", rounds: int | None = None, **options) -> "Trained":
    """Trains a learning process in Python, with callbacks; see `run.callbacks.train`."""
    from hetero_tf.run import callbacks

    return callbacks.train(process, rounds, **options)


def static_norms(model: "Model") -> "Model":
    """Puts static batch normalisation in the place of Keras' own in a model; see `models.own_model.static_norms`."""
    from hetero_tf.models import own_model

    return own_model.static_norms(model)


def load_model(path: "str | Path") -> "Model":
    """Loads a `model.keras` that an export wrote; see `export.formats.keras`."""
    from hetero_tf.export.formats import keras

    return keras.load(path)
