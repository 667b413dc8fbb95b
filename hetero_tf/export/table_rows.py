"""Encodes the texts of table rows in the graph, like `data.columns.Column.encode` in Python."""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from hetero_tf.data.columns import MISSING, Column
from hetero_tf.data.dates import DateOrder

# RE2 has no references to earlier groups, so each separator of a date is an alternative.
_DAY = r"(?:-(\d\d?)-|/(\d\d?)/|\.(\d\d?)\.)"
_TIME = r"(?:[T ]+\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SPACES = r" \x{a0}\x{202f}'\x{2019}"


def build_tables(columns: Sequence[Column]) -> dict[str, tf.lookup.StaticHashTable]:
    """Return the lookup tables of categories, `{column: category -> index}`; -1 for other texts."""

    def table(categories):
        # LiteRT converts tables of int64 only.
        texts, indices = tf.constant(categories), tf.range(len(categories), dtype=tf.int64)
        return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(texts, indices), -1)

    return {column.name: table(column.categories) for column in columns if column.categories}


def encode_rows(rows: tf.Tensor, columns: Sequence[Column], tables: dict[str, tf.lookup.StaticHashTable]) -> tf.Tensor:
    """Return the features of rows.

    Args:
        rows: Values in the order of the columns, string [n, columns].
        columns: Columns of the table.
        tables: Result of `build_tables`.

    Returns:
        float32 [n, features]; NaN for a value that is invalid, or missing in a column without a fill value.
    """
    parts = []
    for index, column in enumerate(columns):
        text = tf.strings.strip(rows[:, index])
        is_missing = _is_missing(text)
        if column.type == "number":
            numbers = _numbers(text, column.notation)
            # The fill value is in plain notation.
            numbers = numbers if column.fill is None else tf.where(is_missing, np.float32(column.fill), numbers)
            parts.append(numbers[:, None])
            parts += [tf.cast(is_missing, tf.float32)[:, None]] if column.marks_missing else []
            continue
        text = text if column.fill is None else tf.where(is_missing, column.fill, text)
        if column.date is not None:
            parts.append(_dates(text, column.date))
        else:
            parts.append(_categories(tables[column.name].lookup(text), column))
    return tf.concat(parts, 1)


def _is_missing(text):
    known = tf.constant(MISSING)
    return tf.reduce_any(tf.strings.lower(text)[:, None] == known, 1)


def _categories(indices, column):
    values = tf.one_hot(indices, len(column.categories)) if column.one_hot else tf.cast(indices, tf.float32)[:, None]
    return tf.where(indices[:, None] < 0, np.float32(np.nan), values)


def _numbers(text, notation):
    """Parse numbers in plain notation, or in another one; see `columns.to_plain_number`."""
    is_percent = tf.zeros_like(text, tf.bool)
    if notation != "plain":
        point, group = (r"\.", ",") if notation == "point" else (",", r"\.")
        text = tf.strings.regex_replace(text, r"\x{2212}", "-")
        whole = rf"(?:\d{{1,3}}(?:[{group}{_SPACES}]\d{{3}})+|\d*)"
        is_other = tf.strings.regex_full_match(text, rf"[+-]?{whole}(?:{point}\d*)?(?:[eE][+-]?\d+)?\s*%?")
        is_percent = is_other & tf.strings.regex_full_match(text, ".*%")
        plain = tf.strings.regex_replace(text, rf"[{group}{_SPACES}%]", "")
        text = tf.where(is_other, tf.strings.regex_replace(plain, point, "."), text)
    is_valid = tf.strings.regex_full_match(text, _NUMBER)
    numbers = tf.strings.to_number(tf.where(is_valid, text, "nan"), tf.float64)
    return tf.cast(tf.where(is_percent, numbers / 100, numbers), tf.float32)


def _dates(text, order: DateOrder):
    """Parse dates and return their features, float32 [n, 8]; see `dates.date_features`."""
    pattern = rf"(\d{{4}}){_DAY}(\d\d?){_TIME}" if order == "ymd" else rf"(\d\d?){_DAY}(\d{{4}}){_TIME}"
    is_date = tf.strings.regex_full_match(text, pattern)
    text = tf.where(is_date, text, "2000-01-01" if order == "ymd" else "01-01-2000")

    def part(groups):
        return tf.strings.to_number(tf.strings.regex_replace(text, f"^{pattern}$", groups), tf.int32)

    first, second, third = part(r"\1"), part(r"\2\3\4"), part(r"\5")
    year, month, day = {"ymd": (first, second, third), "dmy": (third, second, first), "mdy": (third, first, second)}[
        order
    ]
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = tf.gather([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], tf.clip_by_value(month - 1, 0, 11))
    days += tf.cast(is_leap & (month == 2), tf.int32)
    is_valid = is_date & (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    weekday = _weekday(year, month, day)
    angles = [2 * math.pi * tf.cast(month - 1, tf.float64) / 12, 2 * math.pi * tf.cast(weekday, tf.float64) / 7]
    cyclic = [function(angle) for angle in angles for function in (tf.sin, tf.cos)]
    features = [*(tf.cast(value, tf.float32) for value in (year, month, day, weekday)), *cyclic]
    values = tf.stack([tf.cast(feature, tf.float32) for feature in features], 1)
    return tf.where(is_valid[:, None], values, np.float32(np.nan))


def _weekday(year, month, day):
    """Return the weekday of Gregorian dates, Monday is 0, by the method of Sakamoto (1992)."""
    year -= tf.cast(month < 3, tf.int32)
    shift = tf.gather([0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4], tf.clip_by_value(month - 1, 0, 11))
    return (year + year // 4 - year // 100 + year // 400 + shift + day + 6) % 7
