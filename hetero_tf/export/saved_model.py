"""Writes a SavedModel, and loads one for predictions."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import DiskProblem


def write(folder: Path, model: keras.Model, endpoints: dict, tables: Collection) -> dict:
    """Write a SavedModel that stores every variable once.

    Args:
        folder: Folder to create.
        model: Keras model that the endpoints call.
        endpoints: `{signature: (function, input specs)}`.
        tables: Lookup tables that the endpoints use.

    Returns:
        `{signature: {"inputs": {name: {"dtype", "shape"}}, "outputs": likewise}}`; None in a shape means any size.

    Raises:
        DiskProblem: The operating system reported an error.
    """
    module = tf.Module()
    # A Keras model tracks its variables twice, and TensorFlow would store both copies.
    module.variables_of_model = [variable.value for variable in model.variables]
    module.tables = list(tables)
    signatures = {
        name: tf.function(function, input_signature=specs, autograph=False).get_concrete_function()
        for name, (function, specs) in endpoints.items()
    }
    with writing(folder):
        tf.saved_model.save(module, str(folder), signatures=signatures)
    return {
        name: {
            "inputs": {spec.name: _describe(spec) for spec in specs},
            "outputs": {key: _describe(value) for key, value in sorted(signatures[name].structured_outputs.items())},
        }
        for name, (_, specs) in endpoints.items()
    }


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert errors of TensorFlow while it writes into a folder to a `DiskProblem`."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise DiskProblem(
            f"{folder}: could not write the SavedModel: {' '.join(str(error).split())[:200]}; "
            "check the disk and run the same command again"
        ) from error


def _describe(spec):
    return {"dtype": tf.as_dtype(spec.dtype).name, "shape": list(spec.shape)}


def load_runtime(folder: Path, signature: str = "serving_default") -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of a signature of a SavedModel, loaded from its folder."""
    loaded = tf.saved_model.load(str(folder))

    def predict(**inputs):
        # Keep a reference to the loaded model: a signature alone does not keep its variables alive.
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        return {name: value.numpy() for name, value in loaded.signatures[signature](**tensors).items()}

    return predict
