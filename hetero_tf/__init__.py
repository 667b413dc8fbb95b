"""hetero_tf: federated learning of one model on unequal devices, from a YAML recipe."""

from typing import TYPE_CHECKING

from hetero_tf.version import __version__ as __version__

if TYPE_CHECKING:
    # Only for type checkers: the package itself imports at once, TensorFlow when it is first needed.
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from keras import Model

    from hetero_tf.process.learning_process import LearningProcess, State
    from hetero_tf.recipe.schema import Recipe
    from hetero_tf.run.callbacks import Trained


def load_recipe(path: "str | Path", overrides: "Sequence[str]" = ()) -> "Recipe":
    """Reads and checks a recipe; see `recipe.load`."""
    from hetero_tf import recipe

    return recipe.load(path, overrides)


def learning_process(recipe: "Recipe | Mapping | str | Path", **options) -> "LearningProcess":
    """Builds the learning process of a recipe; see `process.learning_process`."""
    from hetero_tf.process import learning_process as process

    return process.learning_process(recipe, **options)


def train(process: "LearningProcess", rounds: int | None = None, **options) -> "Trained":
    """Trains a learning process in Python, with callbacks; see `run.callbacks.train`."""
    from hetero_tf.run import callbacks

    return callbacks.train(process, rounds, **options)


def static_norms(model: "Model") -> "Model":
    """Puts static batch normalisation in the place of Keras' own in a model; see `models.custom_model.static_norms`."""
    from hetero_tf.models import custom_model

    return custom_model.static_norms(model)


def load_run(
    path: "str | Path", state: str = "best", data_dir: "str | Path | None" = None, threads: int | None = None
) -> "tuple[LearningProcess, State]":
    """Goes back from a run folder to a state, on the data and the partition of the run; nothing is written.

    Args:
        path: The run folder. A run of one's own modules needs them registered first (`base.registry.register_plugin`).
        state: "best", of the round that the run's metric chose, or "last", of its newest sealed round.
        data_dir: Folder of the data; None: HETERO_TF_DATA.
        threads: Stacks of clients in flight at once; None: as many as cores.

    Returns:
        The learning process of the run's recipe, and the state: `process.model(state, "c")` is a Keras model,
        `process.evaluate(state)` measures, `process.next(state)` trains another round.

    Raises:
        InputError: The folder holds no run, no whole state, a state of another run, or was trained on other data.
    """
    from hetero_tf.run import load_run as opened

    return opened.load_run(path, state, data_dir, threads)


def load_model(path: "str | Path") -> "Model":
    """Loads a `model.keras` that an export wrote; see `export.formats.keras`."""
    from hetero_tf.export.formats import keras

    return keras.load(path)
