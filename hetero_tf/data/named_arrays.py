"""Examples that consist of several named arrays, such as a picture and a row of numbers; packed as rows of float32.

The rows are stored, divided and shuffled like those of a table. Models unpack them in the graph.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.data.codecs import Field, raw

# Whole numbers up to this limit are exact in float32.
MAX_WHOLE = 2**24


def pack(source: str, part: str, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, tuple[Field, ...]]:
    """Return the arrays of a split as rows, float32 `[n, values]`, and their fields, in their order.

    Args:
        source, part: Prefix of error messages, and "train" or "test".
        arrays: Finite numbers `[n, ...]` by name.

    Raises:
        InputError: An array has an unsuitable name, dtype, shape or value.
    """
    fields, columns = [], []
    for name in arrays:
        location, values = f"{source}: x_{part}[{name!r}]", np.asarray(arrays[name])
        if not (isinstance(name, str) and name.isidentifier()):
            raise InputError(f"{location}: the name of an array must be letters, digits and _. Received: {name!r}")
        if values.dtype.kind not in "biuf" or values.ndim == 0 or values.size == 0:
            raise InputError(
                f"{location} must be numbers [n, ...], all dimensions above 0; replace texts by ids of their words. "
                f"Received: {values.dtype} {values.shape}"
            )
        is_whole = values.dtype.kind in "iu"
        if not np.isfinite(values).all() or is_whole and max(-int(values.min()), int(values.max())) > MAX_WHOLE:
            raise InputError(
                f"{location} must be finite, and whole numbers at most {MAX_WHOLE:,}. Received: numbers from "
                f"{values.min()} to {values.max()}"
            )
        dtype = "uint8" if values.dtype == np.uint8 else "int32" if is_whole else "float32"
        fields.append(Field(name, raw.Codec(values.shape[1:], dtype, float(values.min()), float(values.max()))))
        columns.append(values.astype(np.float32).reshape(len(values), -1))
    counts = {field.name: len(rows) for field, rows in zip(fields, columns)}
    if len(set(counts.values())) != 1:
        raise InputError(
            f"{source}: the arrays of x_{part} must have one entry per example. Received: {shorten_repr(counts, 200)}"
        )
    return np.concatenate(columns, 1), tuple(fields)


def pack_splits(
    source: str, train: Mapping[str, np.ndarray], test: Any
) -> tuple[np.ndarray, np.ndarray, tuple[Field, ...]]:
    """Return the packed rows of both splits, and the fields of the training arrays in the order of their names.

    Raises:
        InputError: An array is unsuitable, or the arrays of the splits differ in their names, shapes or dtypes.
    """
    if not isinstance(test, Mapping) or test.keys() != train.keys():
        received = list(test) if isinstance(test, Mapping) else type(test).__name__
        raise InputError(f"{source}: x_test must have the arrays {', '.join(map(str, train))}. Received: {received}")
    names = sorted(train, key=str)
    rows, fields = pack(source, "train", {name: train[name] for name in names})
    test_rows, test_fields = pack(source, "test", {name: test[name] for name in names})
    for field, other in zip(fields, test_fields):
        expected, received = ((each.codec.dtype, each.codec.shape) for each in (field, other))
        if expected != received:
            raise InputError(
                f"{source}: x_test[{field.name!r}] must have the dtype and shape of the training examples, "
                f"{expected[0]} {expected[1]}. Received: {received[0]} {received[1]}"
            )
    return rows, test_rows, fields
