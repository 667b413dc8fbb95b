"""Columns of a table: how what stands in them becomes the numbers that a model takes."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import BadInput, did_you_mean


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Of the column.
        categories: What may stand in it, in order; empty: numbers.
        one_hot: Whether each category is a feature of its own, 1 where it stands and 0 elsewhere; else the column is
            one feature, the number of the category from 0.
    """

    name: str
    categories: tuple[str, ...] = ()
    one_hot: bool = True

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.categories and self.one_hot:
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    def encode(self, value: str) -> list[float]:
        """Returns the features of what stands in the column.

        Raises:
            BadInput: It is neither a finite number nor a known category.
        """
        if not self.categories:
            return [number(value, self.name)]
        if value not in self.categories:
            raise BadInput(
                f"column {self.name!r} must hold one of {', '.join(self.categories[:10])}"
                f"{', ...' if len(self.categories) > 10 else ''}. Received: {value!r}"
                f"{did_you_mean(value, self.categories)}"
            )
        place = self.categories.index(value)
        return [float(place == one) for one in range(len(self.categories))] if self.one_hot else [float(place)]


def feature_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Names of the features of all columns, in order."""
    return tuple(name for column in columns for name in column.features)


def encode_row(row: str, columns: Sequence[Column]) -> list[float]:
    """Returns the features of a row that a person writes.

    Args:
        row: What stands in the columns, with commas between: `5.1,red`; or with names, in any order:
            `size=5.1,colour=red`.
        columns: Of the table.

    Raises:
        BadInput: A column has no value or two, or one that cannot stand in it.
    """
    values = next(csv.reader([row], skipinitialspace=True), [])
    names = [column.name for column in columns]
    parts = [value.partition("=") for value in values]
    if any(sign and name.strip() in names for name, sign, _ in parts):
        named = {name.strip(): value for name, _, value in parts}
    else:
        named = dict(zip(names, values))
    if len(values) != len(names) or set(named) != set(names):
        raise BadInput(
            f"a row must have a value for each column, {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}, "
            f"with commas between: `1,2`, or `NAME=1,NAME=2` in any order. Received: {row!r}"
        )
    return [feature for column in columns for feature in column.encode(named[column.name].strip())]


def number(value: str, name: str) -> float:
    """Returns the number that a text stands for.

    Args:
        value: The text.
        name: Of the column, for the refusal.

    Raises:
        BadInput: It is no finite number that float32 can hold.
    """
    try:
        found = float(value)
    except ValueError:
        found = np.nan
    if not abs(found) <= float(np.finfo(np.float32).max):
        raise BadInput(f"column {name!r} must hold finite numbers. Received: {value!r}")
    return found


def is_number(text: str) -> bool:
    """Whether a text is a number, NaN and infinity not included."""
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def in_order(values: set[str]) -> tuple[str, ...]:
    """Different texts in order: by number where all of them are numbers, else by letter."""
    if all(is_number(value) for value in values):
        return tuple(sorted(values, key=lambda value: (float(value), value)))
    return tuple(sorted(values))
