"""Inspect data as read: the type, range and missing values of columns, the shares of classes, the length of texts.

All functions are pure and read no options, so they describe data before a recipe exists.
"""

import datetime
import operator
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetero_tf.base.formatting import LINE, shorten
from hetero_tf.data.columns import (
    NOTATIONS,
    Notation,
    RawTable,
    TextColumn,
    find_currencies,
    is_missing,
    is_number,
    to_numbers,
    to_plain_number,
)
from hetero_tf.data.dates import DATE_EXAMPLES, DateOrder, date_orders, parse_time
from hetero_tf.data.picture_files import picture_header

# Largest share of distinct texts among those of categories, and least share of dates among those of dates.
MAX_DISTINCT_SHARE, LEAST_DATES = 0.5, 0.8
# So few distinct texts are categories, and so few distinct numbers may be classes, in a table of any length.
FEW_TEXTS, FEW_NUMBERS = 10, 20
# Texts of which the first decide whether a column has numbers.
SAMPLED_TEXTS = 200
# Numbers that often denote a missing value, and the largest whole number that float64 represents with all before it.
SENTINELS, LARGEST_WHOLE = (99, 999, 9999, 99999, 999999), 2**53
DATE_FEATURES = "they become year, month, day and weekday"
CURRENCIES = "amounts in several currencies"
# Most frequent values in a summary, and pictures that `describe_pictures` examines.
MOST_FREQUENT, MAX_PICTURES = 5, 100
# Columns of a table.
MAX_COLUMNS = 20
# Half of the values within a smaller range, in standard deviations, are equal after scaling; rows that are examined.
MIN_SPREAD, SPREAD_ROWS = 1e-4, 10_000
ColumnType = Literal["number", "category", "date", "text", "id"]
ColumnUse = Literal["feature", "label", "owner", "time", "ignored"]
# Names that pandas gives to an index and to columns without a name.
INDEX = re.compile(r"Unnamed: 0(\.\d+)?|__index_level_\d+__")
# Texts among numbers are missing values up to this share of the rows and this number of distinct texts.
MOST_ODD_ROWS, MOST_ODD_TEXTS = 0.2, 10
# A digit after a leading zero, as in ids such as 007, and -01.5.
_LEADING_ZERO = re.compile(r"[+-]?0\d")
_AMOUNT = re.compile(r"[+-]?[\d.,]*\d\s*([^\W\d_]+|°\w?)")
TIME_OF_DAY = re.compile(r"\d\d?[:.]\d\d([:.]\d\d(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?")


@dataclass(frozen=True)
class Decision:
    """The option that states how to read a column whose values leave it open.

    Attributes:
        option: Name of the option of `data: csv`: "columns" for a type, "missing_values" or "numbers".
        value: Its value, of "columns" that of the column.
        reason: What the column has.
        text: A text of the column that shows it, or "".
        is_required: Whether the loader refuses the column without the option.
    """

    option: str
    value: str
    reason: str
    text: str = ""
    is_required: bool = True


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
        frequent: `(value, rows)` of the most frequent values, the most frequent first.
        low, high: Smallest and largest number or date, in plain notation; "" for other types.
        is_whole: Whether all values are whole numbers.
        notation: Notation of the numbers, see `columns.to_plain_number`.
        date_orders: Possible orders of year, month and day of dates.
        numbers_rows: Whether the numbers are consecutive and differ in all rows.
        has_times: Whether dates have a time of day.
        odd: `(text, rows)` of the texts among numbers or dates that are none, such as "two" and "inf"; of categories
            the first text, if many others are numbers.
        leading_zeros: A number with leading zeros, as ids have them, or "".
        sentinel: `(number, rows)` of a number such as -999 far from all others, which may denote a missing value;
            None if there is none.
        defect: Why the values are neither numbers nor categories for a model, or "".
        role: Use of the column by a recipe; "feature" before one exists.
    """

    name: str
    type: ColumnType
    rows: int
    missing: int
    distinct: int
    frequent: tuple[tuple[str, int], ...]
    low: str = ""
    high: str = ""
    is_whole: bool = False
    notation: Notation = "plain"
    date_orders: tuple[DateOrder, ...] = ()
    numbers_rows: bool = False
    has_times: bool = False
    odd: tuple[tuple[str, int], ...] = ()
    leading_zeros: str = ""
    sentinel: tuple[str, int] | None = None
    defect: str = ""
    role: ColumnUse = "feature"

    @property
    def decisions(self) -> list[Decision]:
        """The options that a feature of these values needs, the first one first."""
        text, zeros = self.frequent[0][0] if self.frequent else "", self.leading_zeros
        odd, odd_rows = self.odd[0][0] if self.odd else "", sum(rows for _, rows in self.odd)
        is_mixed = self.type == "category" and self.odd != ()
        has_many = not is_mixed and (odd_rows > MOST_ODD_ROWS * self.rows or len(self.odd) > MOST_ODD_TEXTS)
        # Few numbers and texts that occur several times are categories, such as 1, 2 and 3+.
        are_codes = self.distinct + len(self.odd) <= FEW_TEXTS and min((n for _, n in self.odd), default=1) > 1
        few = "few " * are_codes
        unusable = {
            "an index written by pandas without `index=False`": (INDEX.fullmatch(self.name), True),
            "no values": (not self.distinct, False),
            f"the single value {text}": (self.distinct == 1 and not self.missing, False),
            self.defect: (self.defect, self.defect == CURRENCIES),
            "row numbers or ids": (self.type == "id", not self.numbers_rows),
            f"names or free text, {self.distinct:,} distinct in {self.rows:,} rows": (self.type == "text", True),
            "ambiguous dates: day or month first": (len(self.date_orders) > 1, True),
            f"numbers and {odd_rows:,} texts such as {odd}": (has_many and not are_codes, True),
        }
        usable = {
            Decision("columns", "date", f"dates such as {text!r}; {DATE_FEATURES}", text): self.type == "date",
            Decision("columns", "category", f"{few}numbers, and texts such as {odd!r}", odd, are_codes): few
            or is_mixed,
            Decision("missing_values", f"[{odd!r}]", f"{self.type}s, but here {odd!r}", odd): self.notation == "plain",
            Decision("columns", "category", f"numbers with leading zeros such as {zeros!r}", zeros): True,
            Decision("numbers", self.notation, f"numbers such as {text!r}", text): self.notation != "plain",
        }
        ignored = [
            Decision("columns", "ignore", reason, "", is_required)
            for reason, (applies, is_required) in unusable.items()
            if applies
        ]
        return [*ignored, *(decision for decision, applies in usable.items() if applies and decision.text)]

    @property
    def are_codes(self) -> bool:
        """True for numbers 0 to k-1 or 1 to k, as numbers of classes are."""
        return self.is_whole and float(self.high) - float(self.low) + 1 == self.distinct and self.low in ("0", "1")

    @property
    def is_continuous(self) -> bool:
        """True if numbers measure an amount; False for numbers of classes, and for few numbers."""
        # An id may be a text, which has no range.
        return self.type in ("number", "id") and self.low != "" and self.distinct > FEW_NUMBERS and not self.are_codes

    @property
    def cells(self) -> tuple[str, str, str]:
        """The name, the type or use, and the values, as texts."""
        present = max(self.rows - self.missing, 1)
        parts = [f"{self.missing:,} missing"] if self.missing else []
        if self.type in ("number", "date", "id") and self.low:
            low, high = map(_short_number, (self.low, self.high))
            parts.append(f"{low} to {high}")
        parts.append(f"{self.distinct:,} distinct")
        values = ", ".join(parts)
        if self.type == "category" and self.role == "feature":
            shares = (f"{shorten(text)} {100 * count / present:.0f} %" for text, count in self.frequent)
            values += f": {', '.join(shares)}"
        return shorten(self.name), (self.type if self.role == "feature" else self.role), values

    @property
    def warning(self) -> str:
        """A sentence for the user about a feature; "" if there is none."""
        if self.role == "feature" and self.numbers_rows and self.type == "number":
            return f"column {self.name!r} numbers the rows; add it to `ignore`"
        if self.role == "feature" and self.has_times:
            return (
                f"column {self.name!r} has times of day, which the features of a date leave out; add a column of hours"
            )
        return ""


@dataclass(frozen=True)
class TableSummary:
    """Columns of the training rows as read.

    Attributes:
        columns: Summaries of all columns, or of the first ones.
        count: Number of columns; 0: as many as there are summaries.
    """

    columns: tuple[ColumnSummary, ...]
    count: int = 0

    def lines(self) -> list[str]:
        """Return a line about the table, and one for each column."""
        rows, count = [summary.cells for summary in self.columns[:MAX_COLUMNS]], self.count or len(self.columns)
        width, roles = max(len(name) for name, _, _ in rows), max(len(role) for _, role, _ in rows)
        lines = [shorten(f"  {name:{width}}  {role:{roles}}  {values}", LINE) for name, role, values in rows]
        more = [f"  and {count - MAX_COLUMNS:,} more"] if count > MAX_COLUMNS else []
        return [f"columns: {count:,} of {self.columns[0].rows:,} rows", *lines, *more]

    @property
    def warnings(self) -> list[str]:
        """Sentences for the user, those of a kind together."""
        return sorted(filter(None, (column.warning for column in self.columns)), key=lambda text: "times of" in text)


def outlier(subject: str, values: np.ndarray, mean: float, std: float) -> str:
    """Return a sentence about numbers `[n]` that an outlier makes equal after standardisation; "" for others."""
    distinct = np.unique(values[:: -(-len(values) // SPREAD_ROWS)]).astype(np.float64)
    spread = np.subtract(*np.quantile(distinct, [0.75, 0.25])) / std
    if len(distinct) <= 3 or spread >= MIN_SPREAD:
        return ""
    extreme = values[np.abs(values - mean).argmax()]
    return (
        f"{subject} has outliers such as {extreme:.4g}, beside which its other values are equal after scaling; "
        "correct or remove them"
    )


def _short_number(text):
    """Return a number with at most 6 significant digits; other texts, such as dates, are unchanged."""
    digits = sum(letter.isdigit() for letter in text)
    return f"{float(text):.6g}" if digits > 6 and is_number(text) else text


def describe_pictures(sources: Sequence[bytes | str]) -> str | None:
    """Describe the sizes and modes of some of the picture files, given by their contents or paths, if one is valid."""
    headers = [header for source in sample(sources, MAX_PICTURES) if (header := picture_header(source))]
    if not headers:
        return None
    sizes = sorted(((height, width) for width, height, _ in headers), key=lambda size: (size[0] * size[1], size))
    modes = Counter(mode for _, _, mode in headers).most_common()
    extent = " to ".join(dict.fromkeys(f"{height} x {width}" for height, width in (sizes[0], sizes[-1])))
    return f"files {extent} ({', '.join(f'{count:,} {mode}' for mode, count in modes)})"


def sample(items: Sequence, most: int) -> list:
    """Return at most `most` items, at equal distances."""
    return [items[index] for index in np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).astype(int))]


def inspect_table(table: RawTable) -> dict[str, ColumnSummary]:
    """Return the summaries of the columns of numbers and texts of a table by name."""
    return {
        name: inspect_column(name, values, name in table.literal)
        for name, values in table.columns.items()
        if isinstance(values, np.ndarray | TextColumn)
    }


def inspect_column(name: str, values: np.ndarray | TextColumn, is_literal: bool = False) -> ColumnSummary:
    """Summarize a column of numbers (NaN is missing) or texts.

    Args:
        name: Name of the column.
        values: Numbers `[n]`, or texts; see `columns.MISSING` for those that denote a missing value.
        is_literal: Whether only an empty text denotes a missing value.
    """
    notation: Notation = "plain"
    if isinstance(values, np.ndarray):
        present = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        numbers, counts = np.unique(present, return_counts=True)
        texts, are_codes = [], values.dtype.kind in "iu"
    else:
        every = np.bincount(values.codes, minlength=len(values.texts))
        is_empty = operator.not_ if is_literal else is_missing
        codes = [code for code, text in enumerate(values.texts) if every[code] and not is_empty(text)]
        texts, counts = [values.texts[code] for code in codes], every[codes]
        notation, numbers = _find_numbers(texts, counts)
        are_codes = all(text.lstrip("+-").isdigit() for text in texts)

    def count(indices):
        return tuple((texts[i] if texts else _format(numbers[i]), int(counts[i])) for i in indices)

    order = np.argsort(-counts, kind="stable")
    missing, frequent = len(values) - int(counts.sum()), count(order[:MOST_FREQUENT])
    summary = ColumnSummary(name, "category", len(values), missing, len(counts), frequent, notation=notation)
    if not len(counts) or numbers is None:
        return replace(summary, **_describe_texts(texts, counts))
    if are_codes and numbers.min() >= 19_000_101 and numbers.max() < 21_000_000:
        dates = _describe_texts(texts or list(map(_format, numbers)), counts)
        if dates["type"] == "date" and not dates["odd"]:
            return replace(summary, **dates)
    finite = np.isfinite(numbers)
    facts = _describe_numbers(numbers[finite], counts[finite], len(values) - missing, are_codes)
    zeros = next(filter(_LEADING_ZERO.match, texts), "") if notation != "comma" else ""
    if zeros and 2 * facts["distinct"] > len(values) > FEW_NUMBERS:
        facts["type"] = "id"
    if len(find_currencies(texts)) > 1:
        facts["defect"] = CURRENCIES
    return replace(summary, odd=count(order[~finite[order]]), leading_zeros=zeros, **facts)


def _find_numbers(texts, counts):
    """Return the notation of most texts and their numbers, float64 `[n]`, NaN for others; None if few are numbers."""
    if not any(map(_LEADING_ZERO.match, texts)) and (plain := to_numbers(texts)) is not None:
        return "plain", plain
    candidates = []
    for notation in NOTATIONS:
        plain_texts = texts if notation == "plain" else [to_plain_number(text, notation) for text in texts]
        start = plain_texts[:SAMPLED_TEXTS]
        if 3 * sum(map(is_number, start)) < len(start):
            continue
        numbers = np.array([float(text) if is_number(text) else np.nan for text in plain_texts])
        candidates.append((int(counts[np.isfinite(numbers)].sum()), notation, numbers))
    rows, *best = max(candidates, key=lambda each: each[0], default=(0,))
    return best if 2 * rows > counts.sum() else ("plain", None)


def _describe_numbers(numbers, counts, rows, are_codes):
    """Return the facts about finite numbers and their rows; `are_codes`: whether all are written as whole numbers."""
    distinct = len(numbers) if are_codes else len(np.unique(numbers))
    if not distinct:
        return {"type": "text", "distinct": 0}
    low, high = numbers.min(), numbers.max()
    is_whole, largest = bool((numbers == np.floor(numbers)).all()), max(abs(float(low)), abs(float(high)))
    numbers_rows = bool(is_whole and distinct == rows > FEW_NUMBERS and high - low + 1 == rows)
    is_id = numbers_rows or (are_codes and distinct > FEW_NUMBERS and largest > LARGEST_WHOLE)
    defect = "numbers whose differences are too small for float32" if are_coarse(numbers) else ""
    if largest > float(np.finfo(np.float32).max):
        defect = "numbers beyond the range of float32"
    return {
        "type": "id" if is_id else "number",
        "distinct": distinct,
        "low": _format(low),
        "high": _format(high),
        "is_whole": is_whole,
        "numbers_rows": numbers_rows,
        "sentinel": _find_sentinel(numbers, counts),
        "defect": "" if is_id else defect,
    }


def are_coarse(numbers: np.ndarray) -> bool:
    """Return whether numbers of small differences, such as seconds since 1970, have equal values in float32."""
    with np.errstate(over="ignore"):
        exact, single = len(np.unique(numbers)), len(np.unique(np.asarray(numbers).astype(np.float32)))
    is_whole = 100 * single < 99 * exact and bool((numbers == np.floor(numbers)).all())
    return is_whole or 2 * single <= exact and exact > 1


def _find_sentinel(numbers, counts):
    """Return a number of nines far from all others that occurs several times, and its rows; None if there is none."""
    if len(numbers) <= 3:
        return None
    order = np.argsort(numbers)
    for extreme, other in ((order[0], order[1:]), (order[-1], order[:-1])):
        value, rest = float(numbers[extreme]), numbers[other].astype(np.float64)
        is_far = (abs(value) in SENTINELS or value in range(-1000, 0)) and np.abs(rest - value).min() > np.ptp(rest)
        is_only_negative = value == -1 and rest.min() > 1
        if counts[extreme] > 1 and (is_far or is_only_negative):
            return _format(numbers[extreme]), int(counts[extreme])
    return None


def _format(number):
    return np.format_float_positional(number, trim="-") if isinstance(number, np.floating) else str(int(number))


def _describe_texts(texts, counts):
    """Return the type and the facts about texts that are no numbers."""
    present, (orders, dates) = int(counts.sum()), _find_dates(texts)
    if dates:
        odd = tuple((text, int(count)) for text, count in zip(texts, counts) if text not in dates)
        low, high = str(min(dates.values()).date()), str(max(dates.values()).date())
        has_times = any(time.time() != datetime.time() for time in dates.values())
        return {"type": "date", "low": low, "high": high, "date_orders": orders, "has_times": has_times, "odd": odd}
    are_ids = len(texts) == present and not any(" " in text for text in texts)
    is_category, defect = len(texts) <= max(FEW_TEXTS, MAX_DISTINCT_SHARE * present), ""
    amounts = [_AMOUNT.fullmatch(text) for text in texts]
    if len(texts) > FEW_TEXTS and all(map(TIME_OF_DAY.fullmatch, texts)):
        defect = "times of day, which are neither dates nor numbers; a column of hours is a number"
    elif len(texts) > FEW_TEXTS and all(amounts) and len({match[1] for match in amounts if match}) == 1:
        defect = f"numbers with a unit such as {texts[0]}; remove the unit"
    words = [(text, int(count)) for text, count in zip(texts, counts) if not is_number(text)]
    odd = tuple(words[: is_category and len(texts) - len(words) > FEW_TEXTS])
    return {"type": "category" if is_category else "id" if are_ids else "text", "defect": defect, "odd": odd}


def _find_dates(texts):
    """Return the possible orders of dates, and the times of most texts; empty if few are dates."""
    start = texts[:SAMPLED_TEXTS]
    # Without a day above 12 it is first, as in `date_orders`.
    count, _, likely = max(
        (sum(parse_time(text, order) is not None for text in start), order == "dmy", order) for order in DATE_EXAMPLES
    )
    if not start or count < LEAST_DATES * len(start):
        return (), {}
    # Times with and without a zone are not comparable.
    times = {text: time.replace(tzinfo=None) for text in texts if (time := parse_time(text, likely)) is not None}
    return (date_orders(times), times) if len(times) >= LEAST_DATES * len(texts) else ((), {})
