"""The fields of a data set, each a name and a codec, and their values side by side in one row."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Assets, Field, Form, is_column, number, picture, series, sound


def array_fields(kind: str, x: Any, names: Sequence[str] | None = None, rate: int | None = None) -> tuple[Field, ...]:
    """Return the fields of arrays.

    Args:
        kind: "images", "table", "series" or "audio".
        x: The stored examples.
        names: Names of the features of a table, or of the channels of series; None if they are unknown.
        rate: Samples per second of audio.
    """
    if kind == "images":
        return (picture.field(x),)
    if rate is not None:
        return (Field("audio", sound.Codec(x.shape[1], rate)),)
    if kind == "series":
        return (Field("series", series.Codec(tuple(x.shape[1:]), None if names is None else tuple(names))),)
    return tuple(Field(name, number.Codec()) for name in names or [f"feature {index}" for index in range(x.shape[1])])


def input_names(fields: Sequence[Field]) -> list[str]:
    """Return a name for each field that TensorFlow accepts for an input: ASCII letters, digits and _, none twice."""
    names: list[str] = []
    for field in fields:
        name = re.sub(r"\W", "_", field.name, flags=re.ASCII)
        name = f"_{name}" if name[:1].isdigit() else name or "_"
        candidates = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(2)))
        names.append(next(each for each in candidates if each.lower() not in map(str.lower, names)))
    return names


def encoded_form(fields: Sequence[Field]) -> Form:
    """Return the form of a table for runtimes without texts: the features of all columns, in one vector.

    NaN is a missing number of a column that replaces it.
    """
    import tensorflow as tf

    sizes = [field.codec.size for field in fields]
    fills, marks = np.full(sum(sizes), np.nan, np.float32), np.zeros(sum(sizes), bool)
    for first, field in zip(itertools.accumulate(sizes, initial=0), fields):
        if isinstance(field.codec, number.Codec) and field.codec.fill is not None:
            fills[first], marks[first + 1 : first + 1 + field.codec.marks_missing] = field.codec.fill, True

    def decode(features):
        if np.isnan(fills).all():
            return features
        is_missing = tf.math.is_nan(features)
        filled = tf.where(is_missing, fills, features)
        return tf.where(marks & tf.pad(is_missing[:, :-1], [[0, 0], [1, 0]]), 1.0, filled) if marks.any() else filled

    return Form("features", "float32", (sum(sizes),), decode)


def forms_of(fields: Sequence[Field], assets: Assets) -> dict[str, list[Form]]:
    """Return the forms of all fields in each signature that has one for each field."""
    forms = [field.codec.forms(name, assets) for field, name in zip(fields, input_names(fields))]
    shared = {signature: [each[signature] for each in forms] for signature in forms[0]}
    return {**shared, "serve_numbers": [encoded_form(fields)]} if is_column(fields[0]) else shared


def type_request(request: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Return a predict request for a table, as JSON, with values in the types of its inputs.

    A row may be a list in the order of the columns, and may name columns as the table does. Texts are converted as
    those of files are; null is a missing value.

    Args:
        request: {"instances": rows} or {"inputs": columns by name}.
        fields: The columns.

    Raises:
        InputError: A value has not the type of its column, whose name is in the message.
    """
    inputs = dict(zip(input_names(fields), fields))
    names = {field.name: name for name, field in inputs.items()}

    def type_values(values, prefix):
        try:
            return {names.get(key, key): _type_value(inputs.get(names.get(key, key)), values[key]) for key in values}
        except InputError as error:
            raise InputError(f"{prefix}{error}") from error

    if not isinstance(request.get("instances"), list):
        columns = request.get("inputs")
        return {**request, "inputs": type_values(columns, "")} if isinstance(columns, Mapping) else dict(request)
    rows = []
    for index, row in enumerate(request["instances"]):
        if not isinstance(row, Mapping):
            values = row if isinstance(row, list) else [row]
            if len(values) != len(fields):
                raise InputError(f"instance {index} must have {len(fields)} values. Received: {len(values)}")
            row = dict(zip(inputs, values))
        rows.append(type_values(row, f"instance {index}: "))
    return {**request, "instances": rows}


def _type_value(field, value):
    if isinstance(value, list):
        return [_type_value(field, each) for each in value]
    is_text = field is not None and (value is None or isinstance(value, str))
    return field.codec.parse(field.name, value or "") if is_text else value
