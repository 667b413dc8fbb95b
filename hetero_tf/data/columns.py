"""Table columns and the encoding of their values as features."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, get_args

import numpy as np

from hetero_tf.base.errors import InputError

# A digit after a leading zero, as in 007 and -01.5.
_LEADING_ZERO = re.compile(r"[+-]?0\d")
# Signs of amounts of money.
CURRENCIES = "$\u20ac\u00a3\u00a5"


def _number_pattern(point, group):
    # Groups of two digits are usual in India.
    sign = re.escape(group)
    integer = rf"\d{{1,3}}(?:[{group} \u00a0\u202f'\u2019]\d{{3}})+|\d{{1,2}}(?:{sign}\d\d)+{sign}\d{{3}}|\d*"
    currency = rf"(?:[{CURRENCIES}]|EUR|USD|GBP|CHF)"
    number = rf"({integer})(?:{re.escape(point)}(\d*))?([eE][+-]?\d+)?"
    return re.compile(rf"([+-]?)(?:{currency}\s?)?{number}[ \u00a0\u202f]*(?:(%)|{currency})?", re.ASCII)


_NUMBER = {"point": _number_pattern(".", ","), "comma": _number_pattern(",", ".")}
# Texts that denote a missing value.
MISSING = ("", "?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "nat", "null", "nil", "none")
Notation = Literal["plain", "point", "comma"]
Scale = Literal["standard", "minmax", "none"]
NOTATIONS: tuple[Notation, ...] = get_args(Notation)
SCALES: tuple[Scale, ...] = get_args(Scale)


def is_missing(text: str) -> bool:
    """Return True for a text that denotes a missing value, such as "" and NA."""
    return text.strip().lower() in MISSING


def to_float(text: str) -> float | None:
    """Return a number of `missing_values`, which may be infinite; None for another text."""
    return float(text) if is_number(text) or text.lstrip("+-").lower() in ("inf", "infinity") else None


def is_listed(text: str, listed: Collection[str]) -> bool:
    """Return True for a text, or a number of equal value, among the `missing_values` of a recipe."""
    if text in listed or not listed:
        return bool(listed)
    return is_number(text) and float(text) in map(to_float, listed)


def parse_number(value: str, name: str) -> float:
    """Return a finite number in the range of float32; the `InputError` for another text names the column."""
    parsed = float(value) if is_number(value) else np.nan
    if not abs(parsed) <= float(np.finfo(np.float32).max):
        raise InputError(f"column {name!r} must be a finite number. Received: {value!r}")
    return parsed


def is_number(text: str) -> bool:
    """Return True for a finite number in plain notation; `float` also accepts `1_3` and non-ASCII digits."""
    try:
        return are_plain_numbers([text]) and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def to_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as float64 `[n]`; None unless all of them are finite numbers in plain notation."""
    try:
        numbers = np.asarray(texts, np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() and are_plain_numbers(texts) else None


def are_plain_numbers(numbers: Iterable[str]) -> bool:
    """Return True if texts that Python parses as numbers are ASCII and have no underscore."""
    joined = "".join(numbers)
    return joined.isascii() and "_" not in joined


def has_leading_zero(text: str) -> bool:
    """Return True for a number with a redundant leading zero, as in ids such as 007."""
    return bool(_LEADING_ZERO.match(text))


def to_plain_number(text: str, notation: Literal["point", "comma"]) -> str:
    """Rewrite a number in plain notation; other texts are returned unchanged.

    Numbers are such as `1,234.5` or `12 %` with the notation point, and `1.234,5 \u20ac` with comma. Spaces and
    apostrophes between groups of three digits and the sign of a currency are dropped; a percentage is divided by 100.
    """
    match = _NUMBER[notation].fullmatch(text.replace("\u2212", "-"))
    if match is None or not (match[2] or match[3]):
        return text
    sign, integer, fraction, exponent, percent = (part or "" for part in match.groups())
    number = f"{sign}{re.sub(r'[^0-9]', '', integer).lstrip('0') or '0'}.{fraction or '0'}{exponent}"
    return repr(float(number) / 100) if percent else number


def find_currencies(texts: Iterable[str]) -> dict[str, str]:
    """Return an amount in each currency."""
    return {sign: text for text in texts for sign in CURRENCIES if sign in text and any(map(str.isdigit, text))}


def normalize(text: str) -> str:
    """Return a text without spaces around it in the Unicode form NFC, in which equal letters have equal codes."""
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def sort_categories(values: set[str]) -> tuple[str, ...]:
    """Sort distinct texts: numerically if all of them are numbers, else alphabetically."""
    if all(is_number(value) for value in values):
        return tuple(sorted(values, key=lambda value: (float(value), value)))
    return tuple(sorted(values))
