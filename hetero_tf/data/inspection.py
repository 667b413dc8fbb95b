"""Inspects data as read: the type, range and missing values of columns, the shares of classes, the length of texts.

All functions are pure and read no options, so they describe data before a recipe exists.
"""

import datetime
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hetero_tf.data.columns import (
    NOTATIONS,
    Notation,
    has_leading_zero,
    is_missing,
    is_number,
    to_numbers,
    to_plain_number,
)
from hetero_tf.data.dates import DateOrder, date_orders, parse_date, parse_time
from hetero_tf.data.picture_files import picture_header
from hetero_tf.data.raw_table import RawTable, TextColumn

# A column with more distinct texts than this share of its rows has names or free texts, not categories.
MAX_DISTINCT_SHARE = 0.5
# So few distinct texts are categories, and so few distinct numbers may be classes, in a table of any length.
FEW_TEXTS, FEW_NUMBERS = 10, 20
# Most frequent values in a summary.
MOST_FREQUENT = 5
# Pictures that a loader examines.
MAX_PICTURES = 100
ColumnType = Literal["number", "category", "date", "text", "id"]
ColumnUse = Literal["feature", "label", "owner", "time", "ignored"]


@dataclass(frozen=True)
class ColumnSummary:
    """Values of a column.

    Attributes:
        name: Name of the column.
        type: "number", "category", "date", "text" (names or free texts), or "id" (row numbers, or a different text
            without spaces in every row).
        rows: Number of rows.
        missing: Number of rows without a value.
        distinct: Number of distinct values.
        low, high: Smallest and largest number or date, in plain notation; "" for other types.
        frequent: `(value, rows)` of the most frequent values, the most frequent first.
        is_whole: Whether all values are whole numbers.
        notation: Notation of the numbers, see `columns.to_plain_number`.
        date_orders: Possible orders of year, month and day of dates.
        numbers_rows: Whether the numbers are consecutive and differ in all rows.
        has_times: Whether dates have a time of day.
        role: Use of the column by a recipe; "feature" before one exists.
    """

    name: str
    type: ColumnType
    rows: int
    missing: int
    distinct: int
    low: str
    high: str
    frequent: tuple[tuple[str, int], ...]
    is_whole: bool
    notation: Notation
    date_orders: tuple[DateOrder, ...]
    numbers_rows: bool = False
    has_times: bool = False
    role: ColumnUse = "feature"

    @property
    def is_continuous(self) -> bool:
        """True if numbers measure an amount; False for class numbers 0 to k-1 or 1 to k, and for few numbers."""
        # An id may be a text, which has no range.
        if self.type not in ("number", "id") or not self.low or self.distinct <= FEW_NUMBERS:
            return False
        low, high = float(self.low), float(self.high)
        return not (self.is_whole and low in (0, 1) and high - low + 1 == self.distinct)


@dataclass(frozen=True)
class PictureSummary:
    """Sizes and modes of picture files.

    Attributes:
        examined: Number of examined pictures.
        smallest, largest: (height, width) with the smallest and the largest area.
        modes: `(mode, pictures)`, see `picture_files.picture_header`, the most frequent first.
    """

    examined: int
    smallest: tuple[int, int]
    largest: tuple[int, int]
    modes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class SoundSummary:
    """Durations and rates of sound files.

    Attributes:
        examined: Number of examined files.
        seconds: The shortest duration, the median, the 0.9 quantile and the longest one.
        rates: `(samples per second, files)`, the most frequent first.
    """

    examined: int
    seconds: tuple[float, float, float, float]
    rates: tuple[tuple[int, int], ...]


def inspect_pictures(sources: Iterable[bytes | str]) -> PictureSummary | None:
    """Summarize picture files, given by their contents or paths; None if no header is readable."""
    headers = [header for source in sources if (header := picture_header(source))]
    if not headers:
        return None
    sizes = sorted(((height, width) for width, height, _ in headers), key=lambda size: (size[0] * size[1], size))
    modes = Counter(mode for _, _, mode in headers).most_common()
    return PictureSummary(len(headers), sizes[0], sizes[-1], tuple(modes))


def sample(items: Sequence, most: int) -> list:
    """Return at most `most` items, at equal distances."""
    return [items[index] for index in np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).astype(int))]


def inspect_table(table: RawTable) -> tuple[ColumnSummary, ...]:
    """Summarize the columns of numbers and texts of a table."""
    columns = table.columns.items()
    return tuple(
        inspect_column(name, values) for name, values in columns if isinstance(values, np.ndarray | TextColumn)
    )


def inspect_column(name: str, values: np.ndarray | TextColumn) -> ColumnSummary:
    """Summarize a column of numbers (NaN is missing) or texts.

    Args:
        name: Name of the column.
        values: Numbers `[n]`, or texts; see `columns.MISSING` for those that denote a missing value.
    """
    if isinstance(values, np.ndarray):
        present = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        numbers, counts = np.unique(present, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
        frequent = [(_format(numbers[index]), int(counts[index])) for index in order]
        return _number_summary(name, len(values), numbers, counts, frequent, "plain")
    every = np.bincount(values.codes, minlength=len(values.texts))
    codes = [code for code, text in enumerate(values.texts) if every[code] and not is_missing(text)]
    if not codes:
        return _text_summary(name, len(values), [], every[codes], [])
    texts, counts = [values.texts[code] for code in codes], every[codes]
    frequent = [(texts[index], int(counts[index])) for index in np.argsort(-counts, kind="stable")[:MOST_FREQUENT]]
    for notation in NOTATIONS:
        numbers = _to_numbers(texts, notation)
        if numbers is not None:
            return _number_summary(name, len(values), numbers, counts, frequent, notation)
    return _text_summary(name, len(values), texts, counts, frequent)


def _to_numbers(texts, notation):
    """Return texts as float64 [n]; None unless all of them are numbers in a notation."""
    if notation == "plain":
        return None if any(map(has_leading_zero, texts)) else to_numbers(texts)
    # Most texts fail at the first one.
    plain = itertools.takewhile(is_number, (to_plain_number(text, notation) for text in texts))
    numbers = [float(text) for text in plain]
    return np.array(numbers) if len(numbers) == len(texts) else None


def _number_summary(name, rows, numbers, counts, frequent, notation):
    present, distinct = int(counts.sum()), len(np.unique(numbers))
    is_whole = bool(distinct) and bool((numbers == np.floor(numbers)).all())
    low, high = (numbers.min(), numbers.max()) if distinct else (np.nan, np.nan)
    numbers_rows = is_whole and distinct == rows > FEW_NUMBERS and high - low + 1 == rows
    return ColumnSummary(
        name,
        "id" if numbers_rows else "number" if distinct else "text",
        rows,
        rows - present,
        distinct,
        _format(low),
        _format(high),
        tuple(frequent),
        is_whole,
        notation,
        (),
        numbers_rows,
    )


def _format(number):
    """Return a number in plain notation; "" for NaN."""
    if np.isnan(number):
        return ""
    return np.format_float_positional(number, trim="-") if isinstance(number, np.floating) else str(int(number))


def _text_summary(name, rows, texts, counts, frequent):
    present, orders = int(counts.sum()), date_orders(texts)
    kind: ColumnType
    low, high, has_times = "", "", False
    if orders:
        dates = [date for text in texts if (date := parse_date(text, orders[0]))]
        kind, low, high = "date", str(min(dates)), str(max(dates))
        has_times = any(time.time() != datetime.time() for text in texts if (time := parse_time(text, orders[0])))
    elif len(texts) <= FEW_TEXTS or len(texts) <= MAX_DISTINCT_SHARE * present:
        kind = "category"
    else:
        kind = "text" if len(texts) < present or any(" " in text for text in texts) else "id"
    values = name, kind, rows, rows - present, len(texts), low, high, tuple(frequent)
    return ColumnSummary(*values, False, "plain", orders, has_times=has_times)
