"""LiteRT (TensorFlow Lite), for phones and small computers, in 32-bit floats."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.base.errors import BadInput, short
from hetero_tf.export.formats import Converted

FILE, NEEDS, EXTRA, EXACT = "model.tflite", ("ai_edge_litert",), "litert", True


def convert(model: Converted, path: Path) -> dict:
    """Writes the file of one signature."""
    write(model, converter(model).convert(), path)
    return {}


def write(model: Converted, content: bytes, path: Path) -> None:
    """Writes a file, and asks it once in a process of its own: the interpreter ends the one that it is in on a failure.

    Raises:
        BadInput: LiteRT cannot compute the model.
    """
    files.write_new(path, content)
    code = (
        "import sys, numpy; from ai_edge_litert.interpreter import Interpreter; "
        "run = Interpreter(model_path=sys.argv[1]).get_signature_runner(); run(**numpy.load(sys.argv[2]))"
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        request = Path(scratch, "request.npz")
        np.savez(request, **next(model.examples()))
        command = [sys.executable, "-c", code, str(path), str(request)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "it aborts" if done.returncode < 0 else short(done.stderr.strip().splitlines()[-1])
        raise BadInput(
            f"{path.name}: LiteRT cannot compute the converted model: {said}; export another level or format"
        )


def converter(model: Converted) -> tf.lite.TFLiteConverter:
    """Returns a converter of one signature into operations that every LiteRT has."""
    made = tf.lite.TFLiteConverter.from_saved_model(str(model.saved_model), signature_keys=[model.signature])
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return made


def answering(path: Path, signature: str | None = None) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of a signature, the only one for None, in LiteRT's own interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path)).get_signature_runner(signature)

    def answer(**inputs):
        return {name: np.array(value) for name, value in runner(**inputs).items()}

    return answer
