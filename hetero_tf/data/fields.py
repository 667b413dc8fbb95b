"""The fields of a data set, each a name and a codec, and their values side by side in one row."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Assets, Field, Form, category, date, number, picture, raw, series, sound, words
from hetero_tf.data.columns import Column, feature_names, parse_number
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.named_arrays import NamedArray


def fields_of(dataset: Dataset) -> tuple[Field, ...]:
    """Return the fields of a data set."""
    shape = tuple(dataset.train.x.shape[1:])
    if dataset.kind == "table":
        columns = dataset.columns or tuple(Column(f"feature {index}") for index in range(shape[0]))
        return column_fields(columns, dataset.feature_statistics[0].tolist())
    if dataset.arrays is not None:
        return tuple(_array_field(array) for array in dataset.arrays)
    if dataset.kind == "series":
        channels = None if dataset.columns is None else feature_names(dataset.columns)
        mean, std = (tuple(values.tolist()) for values in dataset.feature_statistics)
        return (Field("series", series.Codec(shape, channels, dataset.base_channels, mean, std)),)
    if dataset.kind == "audio":
        return (Field("audio", sound.Codec(shape[0], dataset.rate or 0)),)
    if dataset.kind == "images":
        return (Field("image", picture.Codec(shape)),)
    return (Field("text", words.Codec(dataset.vocabulary, dataset.tokenizer, shape[0])),)


def _array_field(array: NamedArray) -> Field:
    return Field(array.name, raw.Codec(array.shape, array.dtype, array.low, array.high))


def column_fields(columns: Sequence[Column], means: Sequence[float]) -> tuple[Field, ...]:
    """Return the fields of columns; `means` are those of their features."""
    remaining = iter(means)
    return tuple(_column_field(column, [next(remaining) for _ in column.features]) for column in columns)


def _column_field(column, means):
    parsing = column.notation, column.missing_values
    if column.type == "category":
        return Field(column.name, category.Codec(column.categories, column.one_hot, column.fill, *parsing))
    if column.date is not None:
        return Field(column.name, date.Codec(column.date, column.fill, column.missing_values))
    fill = None if column.fill is None else parse_number(column.fill, column.name)
    return Field(
        column.name, number.Codec(fill, column.marks_missing, column.notation, means[0], column.missing_values)
    )


def is_column(field: Field) -> bool:
    """Return True for a column of a table."""
    return isinstance(field.codec, number.Codec | category.Codec | date.Codec)


def input_names(fields: Sequence[Field]) -> list[str]:
    """Return a name for each field that TensorFlow accepts for an input: ASCII letters, digits and _, none twice."""
    names: list[str] = []
    for field in fields:
        name = re.sub(r"\W", "_", field.name, flags=re.ASCII)
        name = f"_{name}" if name[:1].isdigit() else name or "_"
        candidates = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(2)))
        names.append(next(each for each in candidates if each.lower() not in map(str.lower, names)))
    return names


def repair_rows(fields: Sequence[Field], x: np.ndarray) -> np.ndarray:
    """Return arbitrary numbers [n, features] as valid rows of a table."""
    parts = zip(fields, split_stored(fields, x), strict=True)
    return np.concatenate([field.codec.repair(part) for field, part in parts], 1)


def split_stored(fields: Sequence[Field], x: np.ndarray) -> list[np.ndarray]:
    """Return the stored values [n, ...] of each field."""
    if len(fields) == 1 and not is_column(fields[0]) and not isinstance(fields[0].codec, raw.Codec):
        return [x]
    ends = itertools.accumulate(field.codec.blank.size for field in fields)
    return np.split(x, list(ends)[:-1], 1)


def encoded_form(fields: Sequence[Field]) -> Form:
    """Return the form of a table for runtimes without texts: the features of all columns, in one vector.

    NaN is a missing number of a column that replaces it.
    """
    import tensorflow as tf

    sizes = [field.codec.blank.size for field in fields]
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
        InputError: A value is no number, date or category of its column, whose name is in the message.
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
