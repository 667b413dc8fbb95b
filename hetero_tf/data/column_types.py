"""Decide the types of a table's columns: from the options of a recipe, else from the values."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

from hetero_tf.base.constraints import Text
from hetero_tf.base.errors import InputError
from hetero_tf.data.arrow_files import ColumnSelection
from hetero_tf.data.codecs import Field, category, date, number
from hetero_tf.data.columns import (
    Notation,
    Scale,
    find_currencies,
    is_number,
    normalize,
    sort_categories,
    to_numbers,
    to_plain_number,
)
from hetero_tf.data.dates import DATE_EXAMPLES, DateOrder, date_orders, parse_date
from hetero_tf.data.inspection import ColumnSummary
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.targets import LABEL, LABEL_SET, NUMBERS

ColumnType = Literal["number", "category", "date", "ignore"]
ColumnTypes = Annotated[dict[str, ColumnType], Text(named=True)]
ColumnScales = Annotated[dict[str, Scale], Text(named=True)]
# Category of missing values.
MISSING_CATEGORY = "missing"
# A column with more distinct values is probably free text or an id; one-hot features would be almost all 0.
MAX_CATEGORIES = 1000


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns: options of `csv.load`, of which `types` are `columns` and `one_hot` is `categories`."""

    label: tuple[str, ...]
    owner: str | None = None
    group: str | None = None
    ignore: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    one_hot: bool = True
    numbers: Notation = "plain"
    missing: str = "error"
    missing_values: tuple[str, ...] = ()
    scale: Mapping[str, Scale] = field(default_factory=dict)
    targets: str = LABEL

    def type_of(self, name: str) -> ColumnType | None:
        """Return the type of a column that an option sets; None: its values decide."""
        if name in self.ignore:
            return "ignore"
        return "category" if name in self.categorical else self.types.get(name)

    def role_of(self, name: str) -> Literal["feature", "label", "owner", "ignored"]:
        """Return the use of a column."""
        if name in (*self.label, self.owner):
            return "owner" if name == self.owner else "label"
        return "ignored" if name == self.group or self.type_of(name) == "ignore" else "feature"

    def selection(self, image: str | None) -> ColumnSelection:
        """Return the columns to read of files with types; of examples with a column of pictures, no other features."""
        requested = None if image is None else [name for name in (*self.label, self.owner, image) if name is not None]
        ignored = [*self.ignore, *(name for name, type_ in self.types.items() if type_ == "ignore")]
        return ColumnSelection(requested, ignored, image, self.label if self.targets == LABEL_SET else ())

    def prepare(self, table: RawTable) -> RawTable:
        """Return a table with marked missing values, whose features have numbers in plain notation.

        Columns of declared categories keep texts such as NA.
        """
        literal = frozenset(name for name in table.columns if self.type_of(name) == "category")
        table = replace(table, literal=literal).mark_missing(self.missing_values)
        others = (self.owner, self.group, *(() if self.targets == NUMBERS else self.label))
        names = [name for name in table.columns if name not in others and self.type_of(name) in (None, "number")]
        return convert_numbers(table, names, self.numbers)

    def find_feature_columns(self, table: RawTable) -> list[str]:
        """Return the names of the columns that become features."""
        options: dict[str, Any] = {"label": self.label, "owner": self.owner, "group": self.group}
        options |= {"ignore": self.ignore, "categorical": self.categorical, "columns": self.types, "scale": self.scale}
        for option, names in options.items():
            for name in [names] if isinstance(names, str) else names or ():
                table.check_column(option, name)
        features = [name for name in table.columns if self.role_of(name) == "feature"]
        if not features:
            raise InputError(f"{table.source}: expected at least one feature column. Received: only the label")
        for name, type_ in self.types.items():
            if name in (*self.ignore, *self.categorical):
                raise InputError(f"{table.source}: `columns` repeats {name!r} of `ignore` or `categorical`; remove one")
            if name == self.owner or (name in self.label and type_ != "category"):
                raise InputError(
                    f"{table.source}: `columns` sets types of features; only `category` may be set for the label, if "
                    f"its numbers are names of classes. Received: columns={{{name!r}: {type_}}}"
                )
        if odd := [name for name in self.scale if name not in features]:
            raise InputError(f"{table.source}: `scale` must name feature columns. Received: scale={{{odd[0]!r}: ...}}")
        return features


def convert_numbers(table: RawTable, names: Iterable[str], notation: Notation) -> RawTable:
    """Convert the numbers of columns of texts to plain notation."""
    columns = dict(table.columns)
    if notation == "plain":
        return table
    for name in names:
        column = columns[name]
        if not isinstance(column, TextColumn):
            continue
        if len(amounts := find_currencies(column.texts)) > 1:
            text = amounts[min(amounts)]
            raise table.value_error(
                column.row_of(text), name, f"has {text!r} and amounts in several currencies, which do not compare"
            )
        columns[name] = column.map(functools.partial(to_plain_number, notation=notation))
    return replace(table, columns=columns)


def build_column(
    table: RawTable, name: str, roles: ColumnRoles, is_training: np.ndarray, summary: ColumnSummary
) -> Field:
    """Build the field of a column, with the codec that the options or its values determine.

    Args:
        table: The table of the training rows, in plain notation.
        name: Name of the column.
        roles: Roles of the columns.
        is_training: Rows without those that are held out, bool `[n]`; fill values are statistics of these.
        summary: Summary of the column.
    """
    if roles.type_of(name) is None:
        _check_decisions(table, summary)
    values = table
    if roles.missing != "error" and (empty := table.missing_rows(name)).any():
        if empty[is_training].all():
            raise InputError(f"{table.source}: column {name!r} has no value in any training row; add it to `ignore`")
        values = replace(table, columns={name: table.columns[name]}).select(np.flatnonzero(~empty))
        is_training = is_training[~empty]
    codec = replace(_infer_codec(values, name, roles, summary), scale=roles.scale.get(name, "standard"))
    if roles.missing in ("error", "drop"):
        return Field(name, codec)
    if roles.missing == "category" and values is not table:
        if isinstance(codec, category.Codec):
            categories = sort_categories({*codec.categories, MISSING_CATEGORY})
            return Field(name, replace(codec, categories=categories, fill=MISSING_CATEGORY))
        if isinstance(codec, number.Codec):
            codec = replace(codec, marks_missing=True)
    return Field(name, replace(codec, fill=_fill_value(values, name, codec, roles.missing, is_training)))


def _check_decisions(table, summary):
    """Raise `InputError` for a column whose type its values do not determine, with the option that does."""
    name = summary.name
    for decision in (each for each in summary.decisions if each.is_required):
        value = f"{{{name!r}: {decision.value}}}" if decision.option == "columns" else decision.value
        problem = f"has {decision.reason}; set `{decision.option}: {value}`, or another type in `columns`"
        column, text = TextColumn.of(table.columns[name]), decision.text
        where = table.locate(column.row_of(text)) if text in column.texts else table.source
        raise InputError(f"{where}: column {name!r} {problem}")


def _infer_codec(table, name, roles, summary):
    """Return a codec without a fill value from rows without missing values in the column."""
    kind = roles.type_of(name)
    listed = () if kind == "category" else tuple(map(normalize, roles.missing_values))
    if kind == "number" or (kind is None and summary.type in ("number", "id")):
        return number.Codec(notation=roles.numbers, missing_values=listed)
    texts = table.read_texts(name)
    if kind == "date":
        return date.Codec(find_date_order(table, name), missing_values=listed)
    categories = sort_categories(set(texts.texts))
    if len(categories) > MAX_CATEGORIES:
        raise InputError(
            f"{table.source}: column {name!r} must have at most {MAX_CATEGORIES} categories; add it to "
            f"`ignore`. Received: {len(categories)} distinct values, such as {categories[0]!r}"
        )
    notation: Notation = "plain" if kind else roles.numbers
    return category.Codec(categories, roles.one_hot, notation=notation, missing_values=listed)


def find_date_order(table: RawTable, name: str) -> DateOrder:
    """Return the order of year, month and day of a column of dates."""
    column = table.read_texts(name)
    orders = date_orders(column.texts)
    if len(orders) == 1:
        return orders[0]
    if orders:
        raise InputError(
            f"{table.source}: column {name!r} must say which number is the day, but no day is above 12; save the dates "
            f"like {DATE_EXAMPLES['ymd']}. Received: {column.texts[0]!r}"
        )
    likely = max(DATE_EXAMPLES, key=lambda order: sum(parse_date(text, order) is not None for text in column.texts))
    row, text = column.find(lambda text: parse_date(text, likely) is None) or (0, "")
    examples = ", ".join(DATE_EXAMPLES.values())
    raise table.value_error(row, name, f"must be a date such as {examples}. Received: {text!r}")


def _fill_value(table, name, codec, missing, is_training):
    """Return the number or text that replaces a missing value, from the values of the training rows."""
    if isinstance(codec, number.Codec):
        numbers = require_numbers(table, name)[is_training]
        if missing == "most_frequent":
            distinct, counts = np.unique(numbers, return_counts=True)
            return float(distinct[counts.argmax()])
        return float(np.median(numbers) if missing == "median" else numbers.mean())
    values = table.read_texts(name)
    counts = np.bincount(values.codes[is_training], minlength=len(values.texts))
    if isinstance(codec, date.Codec) and missing != "most_frequent":
        dates = [each for text in values.texts if (each := parse_date(text, codec.order))]
        by_date = sorted(range(len(dates)), key=dates.__getitem__)
        middle = np.searchsorted(np.cumsum(counts[by_date]), counts.sum() / 2)
        return values.texts[by_date[int(middle)]]
    return values.texts[max(range(len(counts)), key=lambda code: (counts[code], values.texts[code]))]


def parse_numbers(column: np.ndarray | TextColumn) -> np.ndarray | None:
    """Return a column as float64 `[n]`; None if a text is not a finite number."""
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    numbers = to_numbers(column.texts)
    return None if numbers is None else numbers[column.codes]


def require_numbers(table: RawTable, name: str) -> np.ndarray:
    """Return a column as float64 `[n]`; `InputError` for the first text that is not a finite number."""
    numbers = parse_numbers(table.columns[name])
    if numbers is None:
        row, text = table.read_texts(name).find(lambda text: not is_number(text)) or (0, "")
        raise table.value_error(row, name, f"must be a number. Received: {text!r}")
    return numbers
