"""hetero_tf: federated learning of one model on unequal devices, from a YAML recipe."""

from typing import TYPE_CHECKING

from hetero_tf.base.version import __version__ as __version__

if TYPE_CHECKING:
    # For type checkers only: importing the package is fast, and TensorFlow is imported on first use.
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from keras import Model

    from hetero_tf.recipe.schema import Recipe
    from hetero_tf.run.callbacks import Trained
    from hetero_tf.run.learning_process import LearningProcess, State


def _check_keras():
    from hetero_tf.base import hardware

    hardware.check_keras()


def load_recipe(path: "str | Path", overrides: "Sequence[str]" = ()) -> "Recipe":
    """Load and check a recipe.

    Args:
        path: A YAML file, or the name of a shipped recipe such as `mnist` or `tiny/mnist`.
        overrides: Texts `path=value`, applied in order, such as `levels.mix=a1-e9`.

    Raises:
        InputError: The recipe is invalid; the message has every error with file, line, column and key.
    """
    from hetero_tf import recipe

    return recipe.load(path, overrides)


def learning_process(recipe: "Recipe | Mapping | str | Path", **options) -> "LearningProcess":
    """Build the learning process of a recipe; see `run.learning_process`."""
    _check_keras()
    from hetero_tf.run import learning_process as process

    return process.learning_process(recipe, **options)


def train(
    process: "LearningProcess | Recipe | Mapping | str | Path",
    rounds: int | None = None,
    run_dir: "str | Path | None" = None,
    **options,
) -> "Trained":
    """Train in Python: a learning process, or a recipe with your own model and data set.

    Args:
        process: A learning process, or a recipe as for `learning_process`.
        rounds: Number of the last round; None: the recipe's.
        run_dir: Folder of a run of a recipe, which the commands read; a run in it is continued. None: no files.
        options: Of a process: `state`, `callbacks`, see `run.callbacks.train`. Of a recipe: `model`, `dataset`,
            `data_dir`, see `learning_process`; also `callbacks`, `loss` and `metrics` without a run folder, `threads`
            and `quiet` with one.
            The commands find a model function of a module by --plugin MODULE.
    """
    _check_keras()
    from hetero_tf.base.errors import InputError
    from hetero_tf.run import callbacks, experiment
    from hetero_tf.run import learning_process as building

    if run_dir is not None:
        if isinstance(process, building.LearningProcess):
            raise InputError("a run folder is that of a recipe: pass the recipe with model= and dataset= instead")
        for name in options.keys() & {"callbacks", "loss", "metrics"}:
            remedy = "train without run_dir" if name == "callbacks" else f"give {name} to compile()"
            raise InputError(f"a run folder has the loss and metrics of a compiled model, and no callbacks: {remedy}")
        return experiment.train_from_python(process, run_dir, rounds, **options)
    if not isinstance(process, building.LearningProcess):
        callback_list = options.pop("callbacks", ())
        process, options = building.learning_process(process, **options), {"callbacks": callback_list}
    return callbacks.train(process, rounds, **options)


def static_norms(model: "Model") -> "Model":
    """Replace the batch normalisation layers of a model by static ones; see `models.custom_model.static_norms`."""
    _check_keras()
    from hetero_tf.models import custom_model

    return custom_model.static_norms(model)


def load_run(
    path: "str | Path", state: str = "best", data_dir: "str | Path | None" = None, threads: int | None = None, **passed
) -> "tuple[LearningProcess, State]":
    """Load a state of a run folder, with the data and the partition of the run; nothing is written.

    Args:
        path: The run folder. Register the plug-in modules of the run first (`base.registry.register_plugin`).
        state: "best", the round selected by the metric of the run, or "last", the newest checkpoint.
        data_dir: Folder of the data; None: HETERO_TF_DATA.
        threads: Client blocks that run in parallel; None: the number of cores.
        passed: `model` and `dataset`, if they were passed to `train`.

    Returns:
        The learning process of the run's recipe, and the state: `process.model(state, "c")` is a Keras model,
        `process.evaluate(state)` evaluates it, `process.next(state)` runs another round.

    Raises:
        InputError: The folder has no run or no complete state, the state belongs to another run, or the data differ.
    """
    _check_keras()
    from hetero_tf.run import experiment as opened

    return opened.load_run(path, state, data_dir, threads, **passed)


def load_model(path: "str | Path") -> "Model":
    """Load a `model.keras` written by an export, or that of a folder, such as one of `export --push`.

    The model takes the inputs of the export (rows, ids, or pixels in 0..1 and samples in -1..1), and returns logits.
    """
    _check_keras()
    from hetero_tf.export.formats import keras

    return keras.load(path)
