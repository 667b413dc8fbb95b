"""LiteRT (TensorFlow Lite), for phones and small computers, in 32-bit floats."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from keras import Model

from hetero_tf.base import files, hardware
from hetero_tf.base.errors import InputError, short
from hetero_tf.export.formats import Converted
from hetero_tf.layers.recurrent import Recurrent
from hetero_tf.models.variables import all_layers

FILE, NEEDS, EXTRA, EXACT = "model.tflite", ("ai_edge_litert",), "litert", True
# Seconds that the check of a converted file may take; one batch takes less than a second.
SECONDS = 600


def convert(model: Converted, path: Path) -> dict:
    """Writes the file of one signature."""
    check_loops(model.model)
    write(converter(model.saved_model, [model.signature]).convert(), path, {model.signature: next(model.examples())})
    return {}


def check_loops(model: Model) -> None:
    """Refuses a model with a loop over positions, whose arrays LiteRT takes in fixed sizes only.

    Raises:
        InputError: It has such a layer.
    """
    looping = [layer.name for layer in all_layers(model) if isinstance(layer, Recurrent)]
    if looping:
        raise InputError(
            "LiteRT cannot run the loop over positions of a recurrent layer; export to onnx or keras. "
            f"Received: {', '.join(looping)}"
        )


def converter(saved_model: Path, signatures: list[str]) -> tf.lite.TFLiteConverter:
    """Returns a converter of some signatures of a SavedModel into operations that every LiteRT has."""
    made = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=signatures)
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    # Which converter it was and with which options stands in export.json; adding it here reads and writes all again.
    made.exclude_conversion_metadata = True
    return made


ASK = """
import sys
import numpy
from ai_edge_litert.interpreter import Interpreter

interpreter, given = Interpreter(model_path=sys.argv[1]), numpy.load(sys.argv[2])
for signature in sorted({key.split("/")[0] for key in given}):
    run = interpreter.get_signature_runner(signature)
    run(**{name: given[f"{signature}/{name}"] for name in run.get_input_details()})
"""


def write(content: bytes, path: Path, requests: dict[str, dict[str, np.ndarray]]) -> None:
    """Writes a file, and asks it in a process of its own: the interpreter ends the one that it is in on a failure.

    Args:
        content: What to write.
        path: The file.
        requests: For each signature to be asked, `{input: array}`.

    Raises:
        InputError: LiteRT cannot compute the model.
    """
    files.write_new(path, content)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        asked = Path(scratch, "requests.npz")
        with files.disk(asked, "write"):
            given: dict[str, Any] = {
                f"{name}/{key}": value for name in requests for key, value in requests[name].items()
            }
            np.savez(asked, **given)
        words = [sys.executable, "-c", ASK, str(path), str(asked)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            problem = (
                f"{path.name}: LiteRT does not compute one batch within {SECONDS} s; export another level or format"
            )
            raise InputError(problem) from None
    if done.returncode:
        said = "it aborts" if done.returncode < 0 else short(done.stderr.strip().splitlines()[-1])
        raise InputError(
            f"{path.name}: LiteRT cannot compute the converted model: {said}; export another level or format"
        )


def answering(path: Path, signature: str | None = None) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of a signature, the only one for None, in LiteRT's own interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    # It computes with one thread where it is not told otherwise.
    runner = Interpreter(model_path=str(path), num_threads=hardware.cores()).get_signature_runner(signature)

    def answer(**inputs):
        return {name: np.array(value) for name, value in runner(**inputs).items()}

    return answer
