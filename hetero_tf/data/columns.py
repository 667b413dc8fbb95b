"""Columns of a table: how what stands in them becomes the numbers that a model takes."""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hetero_tf.base.errors import InputError, did_you_mean

# Digits after a zero, such as in 007 and -01.5.
_LEADING_ZERO = re.compile(r"[+-]?0\d")
# Three digits between separators, as in 1_000 and 1.234.567.
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:_\d{3})+(?:\.\d*)?")
_SIGNS = r"%\u2030$\u20ac\u00a3\u00a5"
_OTHER_NUMBER = re.compile(
    rf"[-+(]?\s?[{_SIGNS}]?\s?\d[\d.,' \u00a0\u202f\u2019]*(?:[eE][+-]?\d+)?\s?[{_SIGNS})]?|0[xX][0-9a-fA-F]+"
)
_DATE = re.compile(
    r"\d{4}[-/.]\d\d?[-/.]\d\d?(?:[T ].*)?|\d\d?[-/.]\d\d?[-/.]\d{2,4}(?: .*)?|\d\d?:\d\d(?::\d\d(?:\.\d+)?)?"
)


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
    def width(self) -> int:
        """The number of features that the column becomes."""
        return len(self.categories) if self.categories and self.one_hot else 1

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        if self.categories and self.one_hot:
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    def encode(self, value: str) -> list[float]:
        """Returns the features of what stands in the column.

        Raises:
            InputError: It is neither a finite number nor a known category.
        """
        if not self.categories:
            return [number(value, self.name)]
        if value not in self.categories:
            raise InputError(
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
        InputError: A column has no value or two, or one that cannot stand in it.
    """
    values = next(csv.reader([row], skipinitialspace=True), [])
    names = [column.name for column in columns]
    parts = [value.partition("=") for value in values]
    if any(sign and name.strip() in names for name, sign, _ in parts):
        named = {name.strip(): value for name, _, value in parts}
    else:
        named = dict(zip(names, values))
    if len(values) != len(names) or set(named) != set(names):
        raise InputError(
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
        InputError: It is no finite number that float32 can hold.
    """
    found = float(value) if is_number(value) else np.nan
    if not abs(found) <= float(np.finfo(np.float32).max):
        raise InputError(f"column {name!r} must hold finite numbers. Received: {value!r}")
    return found


def is_number(text: str) -> bool:
    """Whether a text is a finite number in plain notation; Python reads `1_3` as 13, and digits of any script."""
    try:
        return are_plain([text]) and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def are_plain(numbers: Iterable[str]) -> bool:
    """Whether texts that Python reads as numbers are ASCII and have no underscore."""
    joined = "".join(numbers)
    return joined.isascii() and "_" not in joined


def has_leading_zero(text: str) -> bool:
    """Whether a number begins with a superfluous zero, as ids such as 007 do."""
    return bool(_LEADING_ZERO.match(text))


def resembles_number(text: str) -> bool:
    """Whether a text is a number, a date or a time in some notation: as a category it would be a mistake, mostly."""
    try:
        float(text.replace("\u2212", "-"))
        return "_" not in text or bool(_GROUPED.fullmatch(text))
    except ValueError:
        return bool(_OTHER_NUMBER.fullmatch(text) or _DATE.fullmatch(text))


def plain_number(text: str, notation: Literal["point", "comma"]) -> str:
    """Rewrite a number in plain notation; any other text is returned as it is.

    Args:
        text: Such as `1,234.5` or `12 %` with a decimal point, or `1.234,5` with a decimal comma. Spaces and
            apostrophes between groups of three digits are dropped, and a percentage is divided by 100.
        notation: The decimal sign.
    """
    point, group = (".", ",") if notation == "point" else (",", ".")
    whole, fraction = rf"\d{{1,3}}(?:[{group} \u00a0\u202f'\u2019]\d{{3}})+|\d*", rf"(?:{re.escape(point)}(\d*))?"
    pattern = rf"([+-]?)({whole}){fraction}([eE][+-]?\d+)?\s*(%?)"
    match = re.fullmatch(pattern, text.replace("\u2212", "-"), re.ASCII)
    if match is None or not (match[2] or match[3]):
        return text
    sign, whole, fraction, exponent, percent = (part or "" for part in match.groups())
    number = f"{sign}{re.sub(r'[^0-9]', '', whole).lstrip('0') or '0'}.{fraction or '0'}{exponent}"
    return repr(float(number) / 100) if percent else number


def in_order(values: set[str]) -> tuple[str, ...]:
    """Different texts in order: by number where all of them are numbers, else by letter."""
    if all(is_number(value) for value in values):
        return tuple(sorted(values, key=lambda value: (float(value), value)))
    return tuple(sorted(values))
