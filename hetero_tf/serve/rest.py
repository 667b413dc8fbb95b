"""TensorFlow Serving's REST bodies: JSON to tensors, and back.

Reference: TensorFlow Serving, "RESTful API", the row format (`instances`) and the column format (`inputs`).
"""

import base64
import binascii
import math
import re
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

DEFAULT = "serving_default"
TYPES = {tf.string: "DT_STRING", tf.float32: "DT_FLOAT", tf.int32: "DT_INT32", tf.uint8: "DT_UINT8", tf.bool: "DT_BOOL"}

_PLACE = re.compile(r"\s*(Graph execution error|Detected at node|File |<stack traces|\[\[|Node: |tf2xla)")


class BadRequest(Exception):
    """A request that cannot be answered; the message is for its sender."""


def predict(signatures: Mapping, body: object) -> dict:
    """Answers a predict request.

    Args:
        signatures: `{name: function}` of a SavedModel.
        body: The request, parsed from JSON: {"signature_name", "instances" or "inputs"}.

    Returns:
        {"predictions": one for each instance}, or {"outputs": ...}, as the request was; ready for JSON, with null for
        numbers that are not finite.

    Raises:
        BadRequest: The body, or what it holds, is not what the signature takes.
    """
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object with instances or inputs")
    unknown = sorted(body.keys() - {"signature_name", "instances", "inputs"})
    if unknown or ("instances" in body) == ("inputs" in body):
        raise BadRequest(
            "the body must have either instances or inputs, and may have signature_name. "
            f"Received: {', '.join(sorted(body)) or 'nothing'}"
        )
    name = body.get("signature_name", DEFAULT)
    if not isinstance(name, str) or name not in signatures:
        raise BadRequest(f"no signature of that name; known: {', '.join(sorted(signatures))}")
    signature = signatures[name]
    specs = signature.structured_input_signature[1]
    by_row = "instances" in body
    given = _columns(body["instances"], specs) if by_row else _named(body["inputs"], specs)
    tensors = {key: _tensor(key, value, specs[key]) for key, value in given.items()}
    try:
        outputs = {key: value.numpy() for key, value in signature(**tensors).items()}
    except (tf.errors.OpError, ValueError, TypeError) as problem:
        raise BadRequest(_sentence(problem)) from problem
    plain = {key: _plain(value) for key, value in outputs.items()}
    if not by_row:
        return {"outputs": next(iter(plain.values())) if len(plain) == 1 else plain}
    if len(plain) == 1:
        return {"predictions": next(iter(plain.values()))}
    rows = zip(*plain.values(), strict=True)
    return {"predictions": [dict(zip(plain, row, strict=True)) for row in rows]}


def _named(inputs, specs):
    """`{input: value}` of the column format."""
    # An object of another kind than {"b64"} names its inputs.
    if isinstance(inputs, dict) and inputs.keys() != {"b64"}:
        _check_names(inputs, specs)
        return inputs
    if len(specs) != 1:
        raise BadRequest(f"inputs must name {' and '.join(sorted(specs))}")
    return {next(iter(specs)): inputs}


def _columns(instances, specs):
    """`{input: value}` of the row format."""
    if not isinstance(instances, list):
        raise BadRequest("instances must be a list")
    named = [isinstance(row, dict) and row.keys() != {"b64"} for row in instances]
    if not any(named):
        if len(specs) != 1:
            raise BadRequest(f"each instance must name {' and '.join(sorted(specs))}")
        return {next(iter(specs)): instances}
    if not all(named):
        raise BadRequest("instances must all be objects that name their inputs, or none of them")
    for row in instances:
        _check_names(row, specs)
    return {name: [row[name] for row in instances] for name in specs}


def _check_names(given, specs):
    if given.keys() != specs.keys():
        raise BadRequest(f"inputs must be {', '.join(sorted(specs))}. Received: {', '.join(sorted(map(str, given)))}")


def _tensor(name, value, spec):
    """A tensor of the type and shape that a signature asks for."""
    sizes = ", ".join("any" if size is None else str(size) for size in spec.shape)
    wanted = f"{name} must be {spec.dtype.name} [{sizes}]"
    try:
        array = np.array(_bytes(value), object) if spec.dtype == tf.string else _numbers(value, spec.dtype)
    except (ValueError, TypeError, OverflowError, binascii.Error) as problem:
        raise BadRequest(f"{wanted}: {_sentence(problem)}") from problem
    if not spec.shape.is_compatible_with(array.shape):
        # An empty list has no other axes.
        if array.shape != (0,) or spec.shape.rank == 0 or spec.shape[0] not in (None, 0):
            raise BadRequest(f"{wanted}. Received: {list(array.shape)}")
        array = array.reshape([0, *(size or 0 for size in spec.shape[1:])])
    return tf.constant(array, spec.dtype)


def _numbers(value, dtype):
    """A NumPy array in the type of a signature, without a loss."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufb" and array.size:
        raise ValueError("numbers are expected")
    if dtype.is_integer and array.size:
        if array.dtype.kind == "f" and not np.all(array == np.rint(array)):
            raise ValueError("whole numbers are expected")
        if not dtype.min <= array.min() <= array.max() <= dtype.max:
            raise ValueError(f"numbers from {dtype.min} to {dtype.max} are expected")
    return array.astype(dtype.as_numpy_dtype)


def _bytes(value):
    if isinstance(value, list):
        return [_bytes(one) for one in value]
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    if isinstance(value, str):
        return value.encode()
    raise ValueError('texts, or {"b64": "..."} for bytes, are expected')


def _plain(array):
    """A NumPy array as lists, ready for JSON."""
    if array.dtype == object:
        return (
            np.vectorize(lambda one: one.decode(errors="replace"), otypes=[object])(array).tolist()
            if array.size
            else []
        )
    values = array.tolist()
    return values if array.dtype.kind != "f" or np.isfinite(array).all() else _finite(values)


def _finite(value):
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if math.isfinite(value) else None


def metadata(name: str, number: int, signatures: Mapping) -> dict:
    """Returns what TensorFlow Serving says of a model's signatures."""

    def told(specs):
        return {
            key: {
                "dtype": TYPES.get(spec.dtype, spec.dtype.name),
                "tensor_shape": {"dim": [{"size": str(-1 if size is None else size)} for size in spec.shape]},
            }
            for key, spec in sorted(specs.items())
        }

    found = {
        key: {
            "inputs": told(signature.structured_input_signature[1]),
            "outputs": told(signature.structured_outputs),
            "method_name": "tensorflow/serving/predict",
        }
        for key, signature in sorted(signatures.items())
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": found}},
    }


def _sentence(problem):
    """What went wrong, without the places in the graph that TensorFlow names around it."""
    text = getattr(problem, "message", None) or str(problem)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _PLACE.match(line)]
    return " ".join((lines or [type(problem).__name__])[-1].split())[:300]
