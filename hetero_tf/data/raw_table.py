"""Tables as read from files: columns of numbers or texts, before their types are decided."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.data.columns import is_listed, is_missing, normalize, to_float


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
        unread: Names of ignored columns that were not read.
    """

    source: str
    columns: dict[str, Any]
    locate: Callable[[int], str]
    literal: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def check_column(self, option: str, name: str) -> None:
        """Raise `InputError` unless the column that an option names exists."""
        if name not in self.columns and (name not in self.unread or option not in ("ignore", "columns")):
            raise InputError(
                f"{self.source}: `{option}` must name a column. Received: {option}={name!r}"
                f"{did_you_mean(name, self.columns)}"
            )

    def text_column(self, option: str, name: str) -> TextColumn:
        """Return the column of texts that an option names; raise `InputError` if it is missing or has numbers."""
        self.check_column(option, name)
        if isinstance(self.columns[name], np.ndarray):
            raise InputError(
                f"{self.source}: `{option}` must name a column of texts. Received: {option}={name!r}, a column of "
                "numbers"
            )
        return self.columns[name]

    def read_texts(self, name: str) -> TextColumn:
        """Return a column as texts; raise `InputError` for a missing value."""
        self.check_complete(name)
        return TextColumn.of(self.columns[name])

    def check_complete(self, name: str) -> None:
        """Raise `InputError` for a missing value of a column."""
        if not (is_empty := self.missing_rows(name)).any():
            return
        row, column = int(is_empty.argmax()), TextColumn.of(self.columns[name])
        text = column.texts[column.codes[row]]
        advice = (
            "fill it in or remove the row; the options of a table also allow `missing: drop`, and for features "
            "`missing: mean` or `ignore`"
        )
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
