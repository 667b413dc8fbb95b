"""LiteRT (TensorFlow Lite), for phones and small computers, in 32-bit floats."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.export.formats import Converted

FILE, NEEDS, EXTRA, EXACT = "model.tflite", ("ai_edge_litert",), "litert", True


def convert(model: Converted, path: Path) -> dict:
    """Writes the file of one signature."""
    files.write_new(path, converter(model).convert())
    return {}


def converter(model: Converted) -> tf.lite.TFLiteConverter:
    """Returns a converter of one signature into operations that every LiteRT has."""
    made = tf.lite.TFLiteConverter.from_saved_model(str(model.saved_model), signature_keys=[model.signature])
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    return made


def answering(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Returns `(**inputs) -> outputs` of the file, in LiteRT's own interpreter."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    (signature,) = interpreter.get_signature_list()
    runner = interpreter.get_signature_runner(signature)

    def answer(**inputs):
        return {name: np.array(value) for name, value in runner(**inputs).items()}

    return answer
