"""Writes a SavedModel with a hint for TensorFlow Serving, and loads one for predictions."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import DiskProblem

# File that TensorFlow Serving reads, inside the folder of a version.
BATCHING = "batching_params.pbtxt"
# Examples of a batch: larger batches gain little on a CPU and delay the first request.
BATCH_SIZE = 64
WAIT_MICROSECONDS = 1000


def write(folder: Path, model: keras.Model, endpoints: dict, tables: Collection) -> dict:
    """Write a SavedModel that stores every variable once.

    Args:
        endpoints: `{signature: (function, input specs)}`.

    Returns:
        `{signature: {"inputs": {name: {"dtype", "shape"}}, "outputs": likewise}}`; None in a shape means any size.
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


def blank_requests(signatures: dict[str, dict[str, tf.TensorSpec]]) -> dict[str, dict[str, np.ndarray]]:
    """Return a small request for each signature, `{signature: {input: value}}`; `signatures` has their input specs.

    The first request of each signature takes much longer than later ones, since TensorFlow optimizes the graph for it.
    These requests contain no data of clients, only black pictures, silence and masked words.
    """
    image = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8)).numpy()
    clip = tf.audio.encode_wav(tf.zeros([1, 1]), 16_000).numpy()
    contents = {"audio_bytes": clip, "image_bytes": image, "text": b"<mask>"}

    def blank(name, spec):
        shape = [1 if size is None else size for size in spec.shape]
        if spec.dtype == tf.string:
            return np.full(shape, contents.get(name, b""), object)
        return np.zeros(shape, spec.dtype.as_numpy_dtype)

    return {name: {key: blank(key, spec) for key, spec in specs.items()} for name, specs in signatures.items()}


def write_batching(folder: Path, max_batch_size: int) -> None:
    """Write the size of batches for TensorFlow Serving into the folder of a version.

    Args:
        max_batch_size: Examples of one call of the model.
    """
    size = min(max_batch_size, BATCH_SIZE)
    hint = f"max_batch_size {{ value: {size} }}\nbatch_timeout_micros {{ value: {WAIT_MICROSECONDS} }}\n"
    files.write_new(folder / BATCHING, hint.encode())
