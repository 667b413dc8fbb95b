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
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.export.formats import ConversionSource
from hetero_tf.layers.lstm import Recurrent
from hetero_tf.models.variables import all_layers

FILE, NEEDS, EXTRA, EXACT = "model.tflite", ("ai_edge_litert",), "litert", True
# Time limit of the check of a converted file in seconds; one batch takes less than a second.
SECONDS = 600


def convert(source: ConversionSource, path: Path) -> dict:
    """Write the file of one signature."""
    check_loops(source.task.model)
    signature = source.task.portable_signature
    write(converter(source.saved_model, [signature]).convert(), path, {signature: next(source.examples())})
    return {}


def check_loops(model: Model) -> None:
    """Reject a model with a loop over positions, since LiteRT supports arrays in loops only with fixed sizes."""
    looping = [layer.name for layer in all_layers(model) if isinstance(layer, Recurrent)]
    if looping:
        raise InputError(
            "LiteRT cannot run the loop over positions of a recurrent layer; export to onnx or keras. "
            f"Received: {', '.join(looping)}"
        )


def converter(saved_model: Path, signatures: list[str]) -> tf.lite.TFLiteConverter:
    """Return a converter of signatures of a SavedModel that uses built-in operations only."""
    lite_converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=signatures)
    lite_converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    # Conversion metadata would make the converter parse and write the whole model once more.
    lite_converter.exclude_conversion_metadata = True
    return lite_converter


RUN_SCRIPT = """
import sys
import numpy
from ai_edge_litert.interpreter import Interpreter

interpreter, requests = Interpreter(model_path=sys.argv[1]), numpy.load(sys.argv[2])
for signature in sorted({key.split("/")[0] for key in requests}):
    run = interpreter.get_signature_runner(signature)
    run(**{name: requests[f"{signature}/{name}"] for name in run.get_input_details()})
"""


def write(content: bytes, path: Path, requests: dict[str, dict[str, np.ndarray]]) -> None:
    """Write a file and run it in a child process, since a failure may abort the process of the interpreter.

    Args:
        requests: `{input: array}` for each signature to run.
    """
    files.write_new(path, content)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        requests_path = Path(scratch, "requests.npz")
        with files.disk_errors(requests_path, "write"):
            arrays: dict[str, Any] = {
                f"{name}/{key}": value for name in requests for key, value in requests[name].items()
            }
            np.savez(requests_path, **arrays)
        command = [sys.executable, "-c", RUN_SCRIPT, str(path), str(requests_path)]
        try:
            completed = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            message = f"{path.name}: LiteRT needs more than {SECONDS} s for one batch; export another level or format"
            raise InputError(message) from None
    if completed.returncode:
        reason = (
            "the process aborted"
            if completed.returncode < 0
            else shorten_repr(completed.stderr.strip().splitlines()[-1])
        )
        raise InputError(
            f"{path.name}: LiteRT cannot run the converted model: {reason}; export another level or format"
        )


def load_runtime(path: Path, signature: str | None = None) -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of a signature in the LiteRT interpreter; None means the only signature."""
    from ai_edge_litert.interpreter import Interpreter

    # The default is one thread.
    runner = Interpreter(model_path=str(path), num_threads=hardware.core_count()).get_signature_runner(signature)

    def predict(**inputs):
        return {name: np.array(value) for name, value in runner(**inputs).items()}

    return predict
