"""Bodies of TensorFlow Serving's REST API: conversion of JSON to tensors, and back.

Reference: TensorFlow Serving, "RESTful API", the row format (`instances`) and the column format (`inputs`).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field
from hetero_tf.data.fields import type_request

DEFAULT = "serving_default"
TYPES = {tf.string: "DT_STRING", tf.float32: "DT_FLOAT", tf.float64: "DT_DOUBLE", tf.int32: "DT_INT32"}
TYPES |= {tf.uint8: "DT_UINT8", tf.bool: "DT_BOOL"}
# Examples of one call of a model; larger requests take several calls, which bounds their memory.
EXAMPLES_AT_ONCE = 256
# Largest number of values of a response, about 160 MB as JSON.
MAX_VALUES = 2**23
# Characters of an error message that list a request's keys.
MAX_LIST_LENGTH = 200

_GRAPH_LOCATION = re.compile(r"\s*(Graph execution error|Detected at node|File |<stack traces|\[\[|Node: |tf2xla)")


def _to_json(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else value.tolist()


_ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_to_json)


class BadRequest(Exception):
    """An invalid request; the message is for the client."""


@dataclass(frozen=True)
class Prediction:
    """A request that matches its signature.

    Attributes:
        name: The signature.
        arrays: `{input: values of its type and shape}`.
        by_row: The response lists one object for each example.
    """

    name: str
    arrays: dict[str, np.ndarray]
    by_row: bool

    @property
    def examples(self) -> int:
        """The largest number of rows of an input."""
        return max(len(array) if array.ndim else 0 for array in self.arrays.values())


def respond(signatures: Mapping, body: bytes, is_cancelled: Callable[[], bool], columns: Sequence[Field] = ()) -> bytes:
    """Return the response to a predict request; see `read`, `predict` and `encode`."""
    request = read(signatures, body, columns)
    return encode(predict(signatures, request, is_cancelled), request.by_row)


def read(signatures: Mapping, body: bytes, columns: Sequence[Field] = ()) -> Prediction:
    """Read a predict request.

    Args:
        signatures: `{name: function}` of a SavedModel.
        body: The request as JSON: {"signature_name", "instances" or "inputs"}.
        columns: Columns of a table, whose rows may be lists and texts; empty for other data.

    Raises:
        BadRequest: The body is not JSON, or does not match the signature.
    """
    request = parse(body)
    if not isinstance(request, dict):
        raise BadRequest("the body must be a JSON object with instances or inputs")
    form = "instances" if "instances" in request else "inputs"
    if request.keys() - {"signature_name"} != {form}:
        raise BadRequest(
            "the body must have either instances or inputs, and optionally signature_name. "
            f"Received: {_listed(request)}"
        )
    name = request.get("signature_name", DEFAULT)
    if not isinstance(name, str) or name not in signatures:
        raise BadRequest(f"unknown signature_name; known: {', '.join(sorted(signatures))}")
    if name == DEFAULT and columns:
        try:
            request = type_request(request, columns)
        except InputError as error:
            raise BadRequest(str(error)) from error
    specs = signatures[name].structured_input_signature[1]
    values = _values_by_input(form, request[form], specs)
    return Prediction(name, {key: _array(key, value, specs[key]) for key, value in values.items()}, form == "instances")


def predict(signatures: Mapping, request: Prediction, is_cancelled: Callable[[], bool]) -> dict[str, np.ndarray]:
    """Call the signature of a request, with a bounded number of examples at a time if its rows are independent.

    Args:
        is_cancelled: Returns True if the work should stop.

    Raises:
        BadRequest: The model rejects the values.
        CancelledError: `is_cancelled` returned True.
    """
    signature, arrays = signatures[request.name], request.arrays
    specs = signature.structured_input_signature[1]
    chunk_size, chunks = EXAMPLES_AT_ONCE if has_independent_rows(signatures, request) else request.examples, []
    try:
        for start in range(0, max(request.examples, 1), max(chunk_size, 1)):
            if is_cancelled():
                raise CancelledError
            tensors = {
                key: tf.constant(array[start : start + chunk_size] if array.ndim else array, specs[key].dtype)
                for key, array in arrays.items()
            }
            chunks.append({key: value.numpy() for key, value in signature(**tensors).items()})
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise BadRequest(_error_text(error)) from error
    if len(chunks) == 1:
        return chunks[0]
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def has_independent_rows(signatures: Mapping, request: Prediction) -> bool:
    """Return True if each example has outputs of a fixed shape, unlike sentences, which are padded to the longest."""
    signature = signatures[request.name]
    specs = signature.structured_input_signature[1]
    shapes = [spec.shape for spec in signature.structured_outputs.values()]
    return (
        len({len(array) if array.ndim else 0 for array in request.arrays.values()}) == 1
        and all(shape.rank and shape[0] is None and shape[1:].is_fully_defined() for shape in shapes)
        and all(spec.shape.rank and spec.shape[0] is None for spec in specs.values())
    )


def parse(body: bytes) -> object:
    """Parse a JSON document.

    Raises:
        BadRequest: The body is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(body)
    except (RecursionError, ValueError) as error:
        # Python's advice about integers with thousands of digits follows a semicolon.
        raise BadRequest(f"the body is not JSON: {str(error).partition(';')[0]}") from error


def _values_by_input(form, value, specs):
    """Return `{input: value}`; `form` is "instances" or "inputs"."""
    rows = value if form == "instances" else [value]
    if not isinstance(rows, list):
        raise BadRequest("instances must be a list")
    # The keys of an object other than {"b64"} are names of inputs.
    names = [row.keys() if isinstance(row, dict) and row.keys() != {"b64"} else () for row in rows]
    if len(specs) == 1 and not any(names):
        return {next(iter(specs)): value}
    for received in names:
        if received != specs.keys():
            raise BadRequest(f"{form} must name {' and '.join(sorted(specs))}. Received: {_listed(received)}")
    return {name: [row[name] for row in rows] for name in specs} if form == "instances" else value


def _listed(names):
    return ", ".join(sorted(names))[:MAX_LIST_LENGTH] or "nothing"


def _array(name, value, spec):
    """Return a value as an array of the type and shape of a signature's input."""
    sizes = ", ".join("any" if size is None else str(size) for size in spec.shape)
    expected = f"{name} must be {spec.dtype.name} [{sizes}]"
    try:
        array = np.array(_bytes(value), object) if spec.dtype == tf.string else _numbers(value, spec.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError, binascii.Error) as error:
        raise BadRequest(f"{expected}: {_error_text(error)}") from error
    if not spec.shape.is_compatible_with(array.shape):
        # An empty list has no other axes.
        if array.shape != (0,) or spec.shape.rank == 0 or spec.shape[0] not in (None, 0):
            raise BadRequest(f"{expected}. Received: {list(array.shape)}")
        array = array.reshape([0, *(size or 0 for size in spec.shape[1:])])
    return array


def _numbers(value, dtype):
    """Return a lossless conversion of nested lists to a NumPy array of the given type."""
    # Without `object`, NumPy would convert numbers to strings of the length of the longest one.
    array = np.array(value, object)
    types = set(map(type, array.ravel()))
    if list in types:
        raise ValueError("lists on the same level must have the same length")
    if not types <= {bool, int, float}:
        raise ValueError("numbers are expected")
    array = array.astype(np.float64 if float in types else np.int64 if int in types else bool)
    if dtype.is_integer and array.size:
        if array.dtype.kind == "f" and not np.all(array == np.rint(array)):
            raise ValueError("whole numbers are expected")
        if not dtype.min <= array.min() <= array.max() <= dtype.max:
            raise ValueError(f"numbers from {dtype.min} to {dtype.max} are expected")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype.as_numpy_dtype)
    # NaN is a missing number of a table, the only input of this type.
    is_valid = np.isfinite(converted) | (np.isnan(converted) if dtype == tf.float64 else False)
    if dtype.is_floating and not is_valid.all():
        raise ValueError(f"numbers up to {dtype.max:g} are expected")
    return converted


def _bytes(value):
    if isinstance(value, list):
        return [_bytes(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    if isinstance(value, str):
        return value.encode()
    raise ValueError('texts, or {"b64": "..."} for bytes, are expected')


def encode(outputs: Mapping[str, np.ndarray], is_by_row: bool) -> bytes:
    """Return a response as JSON, with null for numbers that are not finite.

    Args:
        is_by_row: {"predictions": one for each example}; else {"outputs": ...}.

    Raises:
        BadRequest: The response would be too large.
    """
    size = sum(value.size for value in outputs.values())
    if size > MAX_VALUES:
        raise BadRequest(
            f"the response would have {size} values, but at most {MAX_VALUES} are allowed; send fewer examples"
        )
    arrays = list(outputs.values())
    if is_by_row:
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*arrays, strict=True))
        return f'{{"predictions":{_encode_list(arrays[0] if len(arrays) == 1 else rows)}}}'.encode()
    texts = [_encode_list(array) if array.ndim else _encode(array) for array in arrays]
    if len(texts) > 1:
        members = ",".join(f"{_encode(key)}:{text}" for key, text in zip(outputs, texts))
        return f'{{"outputs":{{{members}}}}}'.encode()
    return f'{{"outputs":{texts[0]}}}'.encode()


def _encode_list(values: Iterable) -> str:
    """Return JSON, encoded element by element: other threads wait while the encoder works."""
    return f"[{','.join(map(_encode, values))}]"


def _encode(value):
    """Return a value as JSON, with null for numbers that are not finite."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(json.loads(json.dumps(value, default=_to_json), parse_constant=lambda name: None))


def metadata(name: str, number: int, signatures: Mapping) -> dict:
    """Return the metadata of a model's signatures in the format of TensorFlow Serving."""

    def describe(specs):
        return {
            key: {
                "dtype": TYPES.get(spec.dtype, spec.dtype.name),
                "tensor_shape": {"dim": [{"size": str(-1 if size is None else size)} for size in spec.shape]},
            }
            for key, spec in sorted(specs.items())
        }

    signature_defs = {
        key: {
            "inputs": describe(signature.structured_input_signature[1]),
            "outputs": describe(signature.structured_outputs),
            "method_name": "tensorflow/serving/predict",
        }
        for key, signature in sorted(signatures.items())
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": signature_defs}},
    }


def _error_text(problem):
    """Return the message of an error, without the graph locations that TensorFlow adds."""
    text = getattr(problem, "message", None) or str(problem)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _GRAPH_LOCATION.match(line)]
    return " ".join((lines or [type(problem).__name__])[-1].split())[:300]
