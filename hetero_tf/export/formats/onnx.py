"""ONNX, for ONNX Runtime and other runtimes; converted by tf2onnx.

Exports of the same state are byte-identical. tf2onnx names constants by the order of Python's hashes, which differs
between processes, so this module renames nodes, tensors and axes by their position in the graph.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    proto.graph.name, proto.graph.doc_string = source.signature, ""
    sort_nodes(proto.graph)
    _rename(proto.graph, {value.name: value.name for value in (*proto.graph.input, *proto.graph.output)}, "")
    for value in (*proto.graph.input, *proto.graph.output):
        for axis, dim in zip(AXES, value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = axis
    opsets = sorted(proto.opset_import, key=lambda opset: opset.domain)
    _replace(proto.opset_import, opsets)
    onnx.helper.set_model_props(proto, metadata(source))
    onnx.checker.check_model(proto)
    files.write_new(path, proto.SerializeToString(deterministic=True))
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


def sort_nodes(graph: Any) -> None:
    """Sort the nodes of an `onnx.GraphProto` by a depth-first search from its outputs, which drops unused ones."""
    for node in graph.node:
        for subgraph in _subgraphs(node):
            _copy_repeated_outputs(subgraph)
            sort_nodes(subgraph)
        _replace(node.attribute, sorted(node.attribute, key=lambda attribute: attribute.name))
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    order: dict[int, None] = {}
    stack = [(producers[value.name], False) for value in reversed(graph.output) if value.name in producers]
    while stack:
        index, is_ready = stack.pop()
        if index in order:
            continue
        if is_ready:
            order[index] = None
            continue
        needed = [producers[name] for name in _inputs(graph.node[index]) if name in producers]
        stack += [(index, True), *((producer, False) for producer in reversed(needed))]
    _replace(graph.node, [graph.node[index] for index in order])


def _copy_repeated_outputs(subgraph):
    """Insert an Identity for repeated outputs of the same tensor, among which tf2onnx chooses arbitrarily."""
    sources = {node.output[0]: node.input[0] for node in subgraph.node if node.op_type == "Identity"}

    def source(name):
        while name in sources:
            name = sources[name]
        return name

    copies: list[str] = []
    for value in subgraph.output:
        name = source(value.name)
        if name in copies:
            subgraph.node.add(op_type="Identity", input=[name], output=[f"{name}/{len(copies)}"])
            name = subgraph.node[-1].output[0]
        copies.append(name)
        value.name = name


def _rename(graph, names, prefix):
    """Rename nodes and tensors by their position; `names` maps old to new names of the surrounding graphs."""
    names = dict(names)
    constants = {constant.name: constant for constant in graph.initializer}
    used = [name for node in graph.node for name in _inputs(node)] + [value.name for value in graph.output]
    used = list(dict.fromkeys(name for name in used if name in constants))
    names |= {name: f"{prefix}constant_{index}" for index, name in enumerate(used)}
    for index, value in enumerate(graph.input):
        names.setdefault(value.name, f"{prefix}input_{index}")
    for index, node in enumerate(graph.node):
        node.name = f"{prefix}{node.op_type}_{index}"
        for position, name in enumerate(node.output):
            names.setdefault(name, name and f"{node.name}:{position}")
    for node in graph.node:
        for subgraph in _subgraphs(node):
            subgraph.name = node.name
            _rename(subgraph, names, f"{node.name}/")
        node.doc_string = ""
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    for name in used:
        constants[name].name = names[name]
    _replace(graph.initializer, [constants[name] for name in used])
    del graph.value_info[:]


def _inputs(node) -> Iterator[str]:
    """Yield the names of tensors that a node and its subgraphs read."""
    yield from node.input
    for subgraph in _subgraphs(node):
        for inner in subgraph.node:
            yield from _inputs(inner)
        yield from (value.name for value in subgraph.output)


def _subgraphs(node):
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _replace(repeated, messages):
    """Replace the messages of a repeated field, which may contain the new ones."""
    copies = [type(message).FromString(message.SerializeToString(deterministic=True)) for message in messages]
    del repeated[:]
    repeated.extend(copies)


def load_runtime(path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Return `(**inputs) -> outputs` of the file in ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def predict(**inputs):
        feeds = {name: np.asarray(value) for name, value in inputs.items()}
        return dict(zip(outputs, session.run(outputs, feeds)))

    return predict
