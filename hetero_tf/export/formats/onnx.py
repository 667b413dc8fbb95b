"""ONNX, for ONNX Runtime and other runtimes; converted by tf2onnx."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

from hetero_tf.base import files
from hetero_tf.export.formats import ConversionSource

FILE, NEEDS, EXTRA, EXACT = "model.onnx", ("tf2onnx", "onnx", "onnxruntime"), "onnx", True
OPSET = 18
# Names of axes of any size of an input or output, by the index of the axis.
AXES = ("batch", "length")


def convert(source: ConversionSource, path: Path) -> dict:
    """Write the file of one signature."""
    import onnx
    import tf2onnx

    function = tf.function(source.function, input_signature=source.specs, autograph=False)
    proto, _ = tf2onnx.convert.from_function(function, input_signature=source.specs, opset=OPSET)
    proto.graph.name, proto.graph.doc_string = source.task.portable_signature, ""
    for value in (*proto.graph.input, *proto.graph.output):
        for axis, dim in zip(AXES, value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = axis
    onnx.helper.set_model_props(proto, metadata(source))
    onnx.checker.check_model(proto)
    files.write_new(path, proto.SerializeToString())
    return {}


def metadata(source: ConversionSource) -> dict[str, str]:
    """Return the `metadata_props` of a file: its recipe, level, classes, and the digest of its weights."""
    dataset = source.task.process.dataset
    props = {
        "recipe": source.task.process.recipe.name,
        "level": source.level,
        "classes": str(dataset.classes),
        "weights_sha256": source.weights_sha256,
    }
    if dataset.class_names is not None:
        props["class_names"] = json.dumps(list(dataset.class_names), ensure_ascii=False)
    if dataset.stand_in_for is not None:
        props["warning"] = f"NOT THE REAL DATA: trained on a stand-in for {dataset.stand_in_for}"
    return props


def load_runtime(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of the file in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def predict(**inputs):
        feeds = {name: np.asarray(value) for name, value in inputs.items()}
        return dict(zip(outputs, session.run(outputs, feeds)))

    return predict
