"""ONNX, for ONNX Runtime and what else reads it; converted by tf2onnx."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.export.formats import Converted

FILE, NEEDS, EXTRA, EXACT = "model.onnx", ("tf2onnx", "onnx", "onnxruntime"), "onnx", True
OPSET = 18


def convert(model: Converted, path: Path) -> dict:
    """Writes the file of one signature."""
    import tf2onnx

    called = tf.function(model.function, input_signature=model.specs, autograph=False)
    tf2onnx.convert.from_function(called, input_signature=model.specs, opset=OPSET, output_path=str(path))
    return {}


def answering(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of the file, in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def answer(**inputs):
        given = {name: np.asarray(value) for name, value in inputs.items()}
        return dict(zip(outputs, session.run(outputs, given)))

    return answer
