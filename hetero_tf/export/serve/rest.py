"""Bodies of TensorFlow Serving's REST API: conversion of JSON to tensors, and back.

Reference: TensorFlow Serving, "RESTful API", the row format (`instances`) and the column format (`inputs`).
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.data.columns import Column
from hetero_tf.export.serve.request_json import BadRequest, Cancelled, parse, to_numbers

DEFAULT, ROWS = "serving_default", "serve_rows"
TYPES = {tf.string: "DT_STRING", tf.float32: "DT_FLOAT", tf.int32: "DT_INT32", tf.uint8: "DT_UINT8", tf.bool: "DT_BOOL"}
# Examples of one call of a model; larger requests take several calls, which bounds their memory.
EXAMPLES_AT_ONCE = 256
# Largest number of values of a response, about 160 MB as JSON; and values that are rendered at once.
MAX_VALUES, VALUES_AT_ONCE = 2**23, 2**14
# Characters of an error message that list a request's keys.
MAX_LIST_LENGTH = 200

_GRAPH_LOCATION = re.compile(r"\s*(Graph execution error|Detected at node|File |<stack traces|\[\[|Node: |tf2xla)")


def respond(
    signatures: Mapping, body: bytes, is_cancelled: Callable[[], bool], columns: Sequence[Column] = ()
) -> bytes:
    """Return the response to a predict request.

    Args:
        signatures: `{name: function}` of a SavedModel.
        body: The request as JSON: {"signature_name", "instances" or "inputs"}.
        is_cancelled: Returns True if the client is gone and the work should stop.
        columns: Columns of the signature "serve_rows"; empty if they are unknown.

    Returns:
        The response as JSON: {"predictions": one for each instance} for "instances", {"outputs": ...} for "inputs";
        with null for numbers that are not finite.

    Raises:
        BadRequest: The body does not match the signature.
        Cancelled: `is_cancelled` returned True.
    """
    by_row, outputs = predict(signatures, parse(body, is_cancelled), is_cancelled, columns)
    sizes = sum(value.size for value in outputs.values())
    if sizes > MAX_VALUES:
        raise BadRequest(
            f"the response would have {sizes} values, but at most {MAX_VALUES} are allowed; send fewer examples"
        )
    pieces = []
    for piece in _rendered_rows(outputs) if by_row else _rendered_columns(outputs):
        if is_cancelled():
            raise Cancelled
        pieces.append(piece.encode())
    return b"".join(pieces)


def predict(
    signatures: Mapping, request: object, is_cancelled: Callable[[], bool], columns: Sequence[Column] = ()
) -> tuple[bool, dict[str, np.ndarray]]:
    """Compute the outputs of a parsed predict request; see `respond`.

    Returns:
        True if the request has the row format (`instances`), and `{output: values}`.
    """
    if not isinstance(request, dict):
        raise BadRequest("the body must be a JSON object with instances or inputs")
    unknown = sorted(request.keys() - {"signature_name", "instances", "inputs"})
    if unknown or ("instances" in request) == ("inputs" in request):
        raise BadRequest(
            "the body must have either instances or inputs, and optionally signature_name. "
            f"Received: {_listed(request)}"
        )
    name = request.get("signature_name", DEFAULT)
    if not isinstance(name, str) or name not in signatures:
        raise BadRequest(f"unknown signature_name; known: {', '.join(sorted(signatures))}")
    signature = signatures[name]
    specs = signature.structured_input_signature[1]
    by_row = "instances" in request
    values = _columns(request["instances"], specs) if by_row else _named(request["inputs"], specs)
    arrays = {key: _array(key, value, specs[key]) for key, value in values.items()}
    try:
        outputs = _call(signature, specs, arrays, is_cancelled)
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise BadRequest(_error_text(error)) from error
    if name == ROWS and len(arrays) == 1:
        _check_rows(arrays, columns, outputs)
    return by_row, outputs


def _check_rows(arrays, columns, outputs):
    """Raise `BadRequest` for the first row without a prediction, with the column that is invalid."""
    ((name, rows),) = arrays.items()
    floats = [values for values in outputs.values() if values.dtype.kind == "f" and len(values) == len(rows)]
    is_invalid = [~np.isfinite(values).all(tuple(range(1, values.ndim))) for values in floats]
    for index in np.flatnonzero(np.any(is_invalid, 0)) if is_invalid else ():
        for column, text in zip(columns, rows[index]):
            try:
                column.encode(text.decode(errors="replace"))
            except InputError as error:
                raise BadRequest(f"{name}[{index}]: {error}") from error


def _call(signature, specs, arrays, is_cancelled):
    """Call a signature, with a bounded number of examples at a time if its rows are independent."""
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    chunk_size = max(counts)
    if len(counts) == 1 and _has_independent_rows(signature, specs):
        chunk_size = EXAMPLES_AT_ONCE
    chunks = []
    for start in range(0, max(*counts, 1), max(chunk_size, 1)):
        if is_cancelled():
            raise Cancelled
        tensors = {
            key: tf.constant(array[start : start + chunk_size] if array.ndim else array, specs[key].dtype)
            for key, array in arrays.items()
        }
        chunks.append({key: value.numpy() for key, value in signature(**tensors).items()})
    if len(chunks) == 1:
        return chunks[0]
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _has_independent_rows(signature, specs):
    """Return True if each example has outputs of a fixed shape, unlike sentences, which are padded to the longest."""
    shapes = [spec.shape for spec in signature.structured_outputs.values()]
    return all(shape.rank and shape[0] is None and shape[1:].is_fully_defined() for shape in shapes) and all(
        spec.shape.rank and spec.shape[0] is None for spec in specs.values()
    )


def _named(inputs, specs):
    """Return `{input: value}` of the column format."""
    # The keys of an object other than {"b64"} are names of inputs.
    if isinstance(inputs, dict) and inputs.keys() != {"b64"}:
        _check_names(inputs, specs)
        return inputs
    if len(specs) != 1:
        raise BadRequest(f"inputs must name {' and '.join(sorted(specs))}")
    return {next(iter(specs)): inputs}


def _columns(instances, specs):
    """Return `{input: value}` of the row format."""
    if not isinstance(instances, (list, np.ndarray)):
        raise BadRequest("instances must be a list")
    rows = [] if isinstance(instances, np.ndarray) else instances
    named = [isinstance(row, dict) and row.keys() != {"b64"} for row in rows]
    if not any(named):
        if len(specs) != 1:
            raise BadRequest(f"each instance must name {' and '.join(sorted(specs))}")
        return {next(iter(specs)): instances}
    if not all(named):
        raise BadRequest("instances must all be objects that name their inputs, or none of them")
    for row in rows:
        _check_names(row, specs)
    return {name: [row[name] for row in rows] for name in specs}


def _check_names(values, specs):
    if values.keys() != specs.keys():
        raise BadRequest(f"inputs must be {', '.join(sorted(specs))}. Received: {_listed(values)}")


def _listed(names):
    return ", ".join(sorted(names))[:MAX_LIST_LENGTH] or "nothing"


def _array(name, value, spec):
    """Return a value as an array of the type and shape of a signature's input."""
    sizes = ", ".join("any" if size is None else str(size) for size in spec.shape)
    expected = f"{name} must be {spec.dtype.name} [{sizes}]"
    try:
        array = np.array(_bytes(value), object) if spec.dtype == tf.string else _numbers(value, spec.dtype)
    except (ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise BadRequest(f"{expected}: {_error_text(error)}") from error
    if not spec.shape.is_compatible_with(array.shape):
        # An empty list has no other axes.
        if array.shape != (0,) or spec.shape.rank == 0 or spec.shape[0] not in (None, 0):
            raise BadRequest(f"{expected}. Received: {list(array.shape)}")
        array = array.reshape([0, *(size or 0 for size in spec.shape[1:])])
    return array


def _numbers(value, dtype):
    """Return a lossless conversion to a NumPy array of the given type."""
    array = to_numbers(value)
    if array is None:
        raise ValueError("numbers are expected")
    if dtype.is_integer and array.size:
        if array.dtype.kind == "f" and not np.all(array == np.rint(array)):
            raise ValueError("whole numbers are expected")
        if not dtype.min <= array.min() <= array.max() <= dtype.max:
            raise ValueError(f"numbers from {dtype.min} to {dtype.max} are expected")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype.as_numpy_dtype)
    if dtype.is_floating and not np.isfinite(converted).all():
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


def _rendered_columns(outputs):
    """Yield the pieces of a response in the column format."""
    yield '{"outputs":'
    if len(outputs) == 1:
        yield from _rendered(next(iter(outputs.values())))
    else:
        separator = "{"
        for key, array in outputs.items():
            yield f"{separator}{json.dumps(key)}:"
            yield from _rendered(array)
            separator = ","
        yield "}"
    yield "}"


def _rendered(array: np.ndarray) -> Iterator[str]:
    """Yield the pieces of an array as JSON."""
    if array.size <= VALUES_AT_ONCE or array.ndim == 0:
        yield _dumps(_plain(array))
        return
    separator, width = "[", array.size // len(array)
    for piece in array if width > VALUES_AT_ONCE else _split(array, width):
        yield separator
        if piece.ndim == array.ndim:
            yield _dumps(_plain(piece))[1:-1]
        else:
            yield from _rendered(piece)
        separator = ","
    yield "]"


def _rendered_rows(outputs):
    """Yield the pieces of a response in the row format."""
    yield '{"predictions":'
    if len(outputs) == 1:
        yield from _rendered(next(iter(outputs.values())))
    else:
        widths = [array.size // len(array) for array in outputs.values() if len(array)]
        split = {key: _split(array, sum(widths)) for key, array in outputs.items()}
        separator = "["
        for slices in zip(*split.values(), strict=True):
            rows = zip(*map(_plain, slices), strict=True)
            yield separator + _dumps([dict(zip(outputs, row, strict=True)) for row in rows])[1:-1]
            separator = ","
        yield "[]" if separator == "[" else "]"
    yield "}"


def _split(array, width):
    """Return slices of about `VALUES_AT_ONCE` values along the first axis; `width` is the number of values of a row."""
    rows = max(VALUES_AT_ONCE // max(width, 1), 1)
    return [array[start : start + rows] for start in range(0, len(array), rows)]


def _dumps(value):
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _plain(array):
    """Return a NumPy array as lists for JSON."""
    if array.dtype == object:
        return (
            np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])(array).tolist()
            if array.size
            else array.tolist()
        )
    values = array.tolist()
    return values if array.dtype.kind != "f" or np.isfinite(array).all() else _finite(values)


def _finite(value):
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if math.isfinite(value) else None


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
