"""Writes a SavedModel, and answers with one."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import DiskProblem


def write(folder: Path, model: keras.Model, endpoints: dict, tables: Collection) -> dict:
    """Writes a SavedModel in which every variable is stored once.

    Args:
        folder: To be made.
        model: What the endpoints call.
        endpoints: `{signature: (function, input specs)}`.
        tables: Lookup tables that the endpoints use.

    Returns:
        `{signature: {"inputs": {name: {"dtype", "shape"}}, "outputs": likewise}}`; None: of any size.

    Raises:
        DiskProblem: The system refused.
    """
    module = tf.Module()
    # Keras's own archive keeps a second list of the same variables, and TensorFlow would store both.
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
            "inputs": {spec.name: _told(spec) for spec in specs},
            "outputs": {key: _told(value) for key, value in sorted(signatures[name].structured_outputs.items())},
        }
        for name, (_, specs) in endpoints.items()
    }


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns what TensorFlow raises while it writes into a folder into a `DiskProblem`."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise DiskProblem(
            f"{folder}: could not write the SavedModel: {' '.join(str(error).split())[:200]}; "
            "check the disk and run the same command again"
        ) from error


def _told(spec):
    return {"dtype": tf.as_dtype(spec.dtype).name, "shape": list(spec.shape)}


def answering(folder: Path, signature: str = "serving_default") -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of a signature of a SavedModel, loaded from its folder as a server does."""
    loaded = tf.saved_model.load(str(folder))

    def answer(**inputs):
        # The signature does not keep the model that it belongs to.
        given = {name: tf.constant(value) for name, value in inputs.items()}
        return {name: value.numpy() for name, value in loaded.signatures[signature](**given).items()}

    return answer
