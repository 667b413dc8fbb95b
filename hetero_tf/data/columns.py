"""Tables as read from files, columns of numbers or texts, and the notations of their values."""

import functools
import operator
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from hetero_tf.base.errors import InputError, did_you_mean, shorten_repr

# Signs of amounts of money.
CURRENCIES = "$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9\u20ba"


@functools.cache
def _number_pattern(notation):
    point, group = ".," if notation == "point" else ",."
    # Groups of two digits are usual in India. A zero begins no group: 0,446 has a decimal comma.
    sign = re.escape(group)
    integer = rf"[1-9]\d{{0,2}}(?:[{group} \u00a0\u202f'\u2019]\d{{3}})+|\d{{1,2}}(?:{sign}\d\d)+{sign}\d{{3}}|\d*"
    currency = rf"(?:[{CURRENCIES}]|EUR|USD|GBP|CHF)"
    start = rf"(?:{currency}\s?)?([+-]?)(?:{currency}\s?)?"
    number = rf"({integer})(?:{re.escape(point)}(\d*))?([eE][+-]?\d+)?"
    return re.compile(rf"{start}{number}[ \u00a0\u202f]*(?:(%)|{currency})?", re.ASCII)


# Notations of negative numbers in accounts.
_NEGATIVE = re.compile(r"^\((.+)\)$|^(.*\d[.,]\d\d+)-$")
# Texts that denote a missing value.
MISSING = ("", "?", "-", "--", ".", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "nat", "null", "nil", "none")
Notation = Literal["plain", "point", "comma"]
Scale = Literal["standard", "minmax", "none"]
NOTATIONS: tuple[Notation, ...] = get_args(Notation)


def is_missing(text: str) -> bool:
    """Return True for a text that denotes a missing value, such as "" and NA."""
    return text.strip().lower() in MISSING


def to_float(text: str) -> float | None:
    """Return a number of `missing_values`, which may be infinite; None for another text."""
    return float(text) if is_number(text) or text.lstrip("+-").lower() in ("inf", "infinity") else None


def is_listed(text: str, listed: Collection[str]) -> bool:
    """Return True for a text, or a number of equal value, among the `missing_values` of a recipe."""
    return text in listed or (len(listed) > 0 and is_number(text) and float(text) in map(to_float, listed))


def parse_number(value: str, name: str) -> float:
    """Parse a number.

    Args:
        value: The text.
        name: Name of the column, for the message.

    Raises:
        InputError: The text is not a finite number in the range of float32.
    """
    parsed = float(value) if is_number(value) else np.nan
    if not abs(parsed) <= float(np.finfo(np.float32).max):
        raise InputError(f"column {name!r} must be a finite number. Received: {value!r}")
    return parsed


def is_number(text: str) -> bool:
    """Return True for a finite number in plain notation; `float` also accepts `1_3` and non-ASCII digits."""
    try:
        return text.isascii() and "_" not in text and bool(np.isfinite(float(text)))
    except ValueError:
        return False


def to_numbers(texts: Sequence[str]) -> np.ndarray | None:
    """Return texts as float64 `[n]`; None unless all of them are finite numbers in plain notation."""
    try:
        numbers = np.asarray(texts, np.float64)
    except ValueError:
        return None
    joined = "".join(texts)
    return numbers if np.isfinite(numbers).all() and joined.isascii() and "_" not in joined else None


def to_plain_number(text: str, notation: Literal["point", "comma"]) -> str:
    """Rewrite a number in plain notation; other texts are returned unchanged.

    Args:
        text: Such as `1,234.5` or `12 %` with a decimal point, or `1.234,5 €` with a decimal comma. Spaces and
            apostrophes between groups of three digits and the sign of a currency are dropped, and a percentage is
            divided by 100. Numbers such as `(1,234)` and `12.34-` are negative.
        notation: The decimal sign.
    """
    match = _number_pattern(notation).fullmatch(_NEGATIVE.sub(r"-\1\2", re.sub("[\u2212\u2013]", "-", text)))
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


@dataclass(frozen=True)
class TextColumn:
    """A column of texts that stores each distinct text once.

    Attributes:
        texts: The distinct texts.
        codes: Index of each row's text, int64 `[n]`.
    """

    texts: list[str]
    codes: np.ndarray

    @classmethod
    def from_values(cls, values: Iterable[str]) -> "TextColumn":
        """Encode the text of each row in the Unicode form NFC, without spaces around it."""
        index: dict[str, int] = {}
        codes = np.array([index.setdefault(text, len(index)) for text in values], np.int64)
        merged: dict[str, int] = {}
        positions = np.array([merged.setdefault(normalize(text), len(merged)) for text in index], np.int64)
        return cls(list(merged), positions[codes])

    @classmethod
    def of(cls, column: "np.ndarray | TextColumn") -> "TextColumn":
        """Return a column as texts; integers have no decimal point."""
        if isinstance(column, TextColumn):
            return column
        is_float = column.dtype.kind == "f"
        # Adding 0 turns -0 into 0.
        distinct, codes = np.unique(column + 0.0 if is_float else column, return_inverse=True)
        return cls([np.format_float_positional(n, trim="-") if is_float else str(int(n)) for n in distinct], codes)

    def __len__(self):
        return len(self.codes)

    def select(self, rows: np.ndarray) -> "TextColumn":
        """Return the selected rows; texts that no longer occur are dropped."""
        codes, positions = np.unique(self.codes[rows], return_inverse=True)
        return TextColumn([self.texts[code] for code in codes], positions)

    def map(self, convert: Callable[[str], str]) -> "TextColumn":
        """Return a column of converted texts."""
        converted = TextColumn.from_values(map(convert, self.texts))
        return TextColumn(converted.texts, converted.codes[self.codes])

    def find(self, matches: Callable[[str], bool]) -> tuple[int, str] | None:
        """Return the row and the text of the first match; None if no text matches."""
        codes = [code for code, text in enumerate(self.texts) if matches(text)]
        rows = np.flatnonzero(np.isin(self.codes, codes))
        return (int(rows[0]), self.texts[self.codes[rows[0]]]) if len(rows) else None

    def row_of(self, text: str) -> int:
        """Return the first row of a text."""
        return int((self.codes == self.texts.index(text)).argmax())


def to_names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns as a tuple, also if there is a single one."""
    return (value,) if isinstance(value, str) else tuple(value)


@dataclass(frozen=True)
class RawTable:
    """Unprocessed rows of a table.

    Attributes:
        source: File or folder.
        columns: `{name: numbers [n], a TextColumn, or a list of pictures}`, all of the same length.
        locate: `row -> "FILE:LINE"`, for messages.
        literal: Columns in which only an empty text is a missing value, not NA or None.
        odd_types: `{name: Arrow type}` of columns without numbers, texts and dates, which may be absent in `columns`.
        plain: Names of the columns whose numbers had plain notation in a table of another one.
    """

    source: str
    columns: dict[str, Any]
    locate: Callable[[int], str]
    literal: frozenset[str] = frozenset()
    odd_types: Mapping[str, str] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def check_columns(self, **options: str | Iterable[str] | None) -> None:
        """Raise `InputError` unless the columns that options name exist, and, if they are not ignored, were read."""
        for option, value in options.items():
            names = [value] if isinstance(value, str) else list(value or ())
            if option not in ("ignore", "columns"):
                self.check_types(set(names) - self.columns.keys())
            for name in names:
                if name not in self.columns and name not in self.odd_types:
                    problem = f"{self.source}: `{option}` must name a column. Received: {option}={name!r}"
                    raise InputError(problem + did_you_mean(name, self.columns))

    def check_types(self, names: Iterable[str], allows_lists: bool = False) -> None:
        """Raise `InputError` for a column that has neither numbers, texts and dates nor, if allowed, lists of texts."""
        for name in names:
            type_, is_list = self.odd_types.get(name), isinstance(self.columns.get(name), TextColumn)
            if type_ and not (allows_lists and is_list):
                advice = "add it to `ignore`" + ", or set it as `image`" * ("binary" in type_)
                needs = f"must contain numbers, texts or dates; {advice}"
                raise InputError(f"{self.source}: column {name!r} {needs}. Received: {shorten_repr(type_, 80)}")

    def text_column(self, option: str, name: str) -> TextColumn:
        """Return the column of texts that an option names; raise `InputError` if it is missing or has numbers."""
        self.check_columns(**{option: name})
        self.check_types([name])
        if isinstance(self.columns[name], np.ndarray):
            raise InputError(f"{self.source}: `{option}` must name a column of texts. Received: {option}={name!r}")
        return self.columns[name]

    def read_texts(self, name: str) -> TextColumn:
        """Return a column as texts; raise `InputError` for a missing value."""
        self.check_complete(name)
        return TextColumn.of(self.columns[name])

    def require(self, name: str, is_valid: Callable[[str], Any], expected: str) -> TextColumn:
        """Return a column as texts; raise `InputError` for a missing value or a text that is not as expected."""
        column = self.read_texts(name)
        if invalid := column.find(lambda text: not is_valid(text)):
            raise self.value_error(invalid[0], name, f"must be {expected}. Received: {invalid[1]!r}")
        return column

    def check_complete(self, name: str) -> None:
        """Raise `InputError` for a missing value of a column."""
        if not (is_empty := self.missing_rows(name)).any():
            return
        row, column = int(is_empty.argmax()), TextColumn.of(self.columns[name])
        text = column.texts[column.codes[row]]
        advice = "fill it in, or set `missing: drop`, or for features `missing: mean` or `ignore`"
        if text.strip(".-?") and text != "nan":
            advice += f"; `columns: {{{name!r}: category}}` keeps {text!r} as a category"
        raise self.value_error(row, name, f"has no value here ({text!r}); {advice}")

    def missing_rows(self, name: str) -> np.ndarray:
        """Return the rows without a value in a column, bool `[n]`."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            return np.isnan(column) if column.dtype.kind == "f" else np.zeros(len(column), bool)
        return np.array(list(map(self.test_missing(name), column.texts)), bool)[column.codes]

    def test_missing(self, name: str) -> Callable[[str], bool]:
        """Return the function that is True for the texts of a column that denote a missing value."""
        return operator.not_ if name in self.literal else is_missing

    def fill(self, name: str, value: float | str) -> "RawTable":
        """Return the table with a value for the missing ones of a column."""
        column = self.columns[name]
        if isinstance(column, np.ndarray) and not isinstance(value, str):
            filled: Any = np.where(np.isnan(column), value, column)
        else:
            is_empty = self.test_missing(name)
            filled = TextColumn.of(column).map(lambda text: str(value) if is_empty(text) else text)
        return replace(self, columns={**self.columns, name: filled})

    def mark_missing(self, texts: Sequence[str]) -> "RawTable":
        """Return the table with further texts or numbers as missing values, except in the `literal` columns."""
        known = set(map(normalize, texts))
        numbers = [number for text in known if (number := to_float(text)) is not None]

        def mark(column):
            if isinstance(column, TextColumn):
                return column.map(lambda text: "" if is_listed(text, known) else text)
            return np.where(np.isin(column, numbers), np.nan, column) if isinstance(column, np.ndarray) else column

        columns = {name: column if name in self.literal else mark(column) for name, column in self.columns.items()}
        return replace(self, columns=columns) if known else self

    def select(self, rows: np.ndarray) -> "RawTable":
        """Return the selected rows; `rows` is an array of indices."""
        columns = {
            name: column[rows] if isinstance(column, np.ndarray) else column.select(rows)
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns, locate=lambda row: self.locate(int(rows[row])))

    def drop_missing(self, names: Iterable[str | None]) -> "RawTable":
        """Return the rows that have values in some columns; `InputError` if there are none."""
        is_dropped = np.any([self.missing_rows(name) for name in names if name is not None], 0)
        if is_dropped.all():
            raise InputError(f"{self.source}: `missing: drop` leaves no row, since every row has a missing value")
        return self.select(np.flatnonzero(~is_dropped)) if is_dropped.any() else self

    def value_error(self, row: int, name: str, problem: str) -> InputError:
        """Return the error about the value of a column in a row."""
        return InputError(f"{self.locate(row)}: column {name!r} {problem}")
