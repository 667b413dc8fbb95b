"""Decides the types of a table's columns: from the options of a recipe, else from the values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from hetero_tf.base.constraints import Text
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field, category, date, number
from hetero_tf.data.columns import Notation, Scale, has_leading_zero, is_number, normalize, sort_categories, to_numbers
from hetero_tf.data.dates import DATE_EXAMPLES, DateOrder, date_orders, parse_date
from hetero_tf.data.inspection import inspect_column
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.targets import LABEL

ColumnType = Literal["number", "category", "date", "ignore"]
ColumnTypes = Annotated[dict[str, ColumnType], Text(named=True)]
ColumnScales = Annotated[dict[str, Scale], Text(named=True)]
# Category of missing values.
MISSING_CATEGORY = "missing"
# A column with more distinct values is probably free text or an id; one-hot features would be almost all 0.
MAX_CATEGORIES = 1000
# Names that pandas gives to an index and to columns without a name.
INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns: options of `csv.load`, of which `types` are `columns` and `one_hot` is `categories`."""

    label: tuple[str, ...]
    owner: str | None
    ignore: tuple[str, ...]
    categorical: tuple[str, ...]
    types: Mapping[str, ColumnType]
    one_hot: bool
    numbers: Notation
    missing: str
    scale: Mapping[str, Scale]
    targets: str = LABEL
    missing_values: tuple[str, ...] = ()
    group: str | None = None

    @property
    def class_label(self) -> str | None:
        """Name of the only label column if its values are classes; else None."""
        return self.label[0] if self.targets == LABEL and len(self.label) == 1 else None

    @property
    def ignored(self) -> tuple[str, ...]:
        """Names of the columns that are left out."""
        return (*self.ignore, *(name for name, type_ in self.types.items() if type_ == "ignore"))

    def type_of(self, name: str) -> ColumnType | None:
        """Return the type of a column that an option sets; None: its values decide."""
        if name in self.ignore:
            return "ignore"
        return "category" if name in self.categorical else self.types.get(name)

    def role_of(self, name: str) -> Literal["feature", "label", "owner", "ignored"]:
        """Return the use of a column."""
        if name in (*self.label, self.owner):
            return "owner" if name == self.owner else "label"
        if name == self.group:
            return "ignored"
        return "ignored" if self.type_of(name) == "ignore" else "feature"

    def mark_missing(self, table: RawTable) -> RawTable:
        """Return a table whose columns of declared categories keep texts such as NA, and with marked missing values."""
        literal = frozenset(name for name in table.columns if self.type_of(name) == "category")
        return replace(table, literal=literal).mark_missing(self.missing_values)

    def find_feature_columns(self, table: RawTable) -> list[str]:
        """Return the names of the columns that become features.

        Raises:
            InputError: An option names a column that does not exist or has another role, or none is left.
        """
        options: dict[str, Any] = {"label": self.label, "owner": self.owner, "group": self.group}
        options |= {"ignore": self.ignore, "categorical": self.categorical, "columns": self.types, "scale": self.scale}
        for option, names in options.items():
            for name in [names] if isinstance(names, str) else names or ():
                table.check_column(option, name)
        remaining = [name for name in table.columns if self.role_of(name) == "feature"]
        if not remaining:
            raise InputError(f"{table.source}: expected at least one feature column. Received: only the label")
        for name in remaining:
            if INDEX.fullmatch(name):
                raise InputError(
                    f"{table.source}: column {name!r} has no name, or is an index written by pandas; save the table "
                    f"with `index=False`, or set `ignore: [{name!r}]`"
                )
        self._check_options(table.source, remaining)
        return remaining

    def _check_options(self, source, features):
        """Reject types and scales without effect."""
        if odd := [name for name in self.types if name in (*self.ignore, *self.categorical)]:
            raise InputError(f"{source}: `columns` repeats {odd[0]!r} of `ignore` or `categorical`; remove one of them")
        for name, type_ in self.types.items():
            if name == self.owner or (name in self.label and type_ != "category"):
                raise InputError(
                    f"{source}: `columns` sets types of features; only `category` may be set for the label, if its "
                    f"numbers are names of classes. Received: columns={{{name!r}: {type_}}}"
                )
        if odd := [name for name in self.scale if name not in features]:
            raise InputError(f"{source}: `scale` must name feature columns. Received: scale={{{odd[0]!r}: ...}}")


def build_column(table: RawTable, name: str, roles: ColumnRoles, is_training: np.ndarray) -> Field:
    """Build the field of a column, with the codec that the options or its values determine.

    Args:
        table: The table of the training rows, in plain notation.
        name: Name of the column.
        roles: Roles of the columns.
        is_training: Rows without those that are held out, bool `[n]`; fill values are statistics of these.

    Raises:
        InputError: The values have another type, or no type is likely.
    """
    values = table
    if roles.missing != "error" and (empty := table.missing_rows(name)).any():
        if empty[is_training].all():
            raise InputError(f"{table.source}: column {name!r} has no value in any training row; add it to `ignore`")
        values = replace(table, columns={name: table.columns[name]}).select(np.flatnonzero(~empty))
        is_training = is_training[~empty]
    codec = replace(_infer_codec(values, name, roles), scale=roles.scale.get(name, "standard"))
    if roles.missing in ("error", "drop"):
        return Field(name, codec)
    if roles.missing == "category" and values is not table:
        if isinstance(codec, category.Codec):
            categories = sort_categories({*codec.categories, MISSING_CATEGORY})
            return Field(name, replace(codec, categories=categories, fill=MISSING_CATEGORY))
        if isinstance(codec, number.Codec):
            codec = replace(codec, marks_missing=True)
    return Field(name, replace(codec, fill=_fill_value(values, name, codec, roles.missing, is_training)))


def _infer_codec(table, name, roles):
    """Return a codec without a fill value from rows without missing values in the column."""
    values, kind = table.columns[name], roles.type_of(name)
    listed = () if kind == "category" else tuple(map(normalize, roles.missing_values))
    if kind is None:
        _reject_doubtful(table, name, inspect_column(name, values), roles)
    if kind == "number" or (kind is None and parse_numbers(values) is not None):
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
    """Return the order of year, month and day of a column of dates.

    Raises:
        InputError: A text is not a date, or no day decides the order.
    """
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
    raise table.value_error(
        row, name, f"must be a date such as {', '.join(DATE_EXAMPLES.values())}. Received: {text!r}"
    )


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


def _reject_doubtful(table, name, summary, roles):
    """Reject a column whose type its values do not determine; the message names the option that does."""
    column, where = table.columns[name], f"{table.source}: column {name!r}"
    if summary.type == "date":
        raise InputError(
            f"{where} has dates such as {column.texts[0]!r}; set `columns: {{{name!r}: date}}` "
            f"to use the year, month, day and weekday, or `columns: {{{name!r}: ignore}}`"
        )
    if summary.type in ("text", "id") and isinstance(column, TextColumn) and not summary.numbers_rows:
        looks = "an id" if summary.type == "id" else "names or free text"
        raise InputError(
            f"{where} has {summary.distinct:,} distinct texts in {table.rows:,} rows, such as "
            f"{column.texts[0]!r}: it looks like {looks}; set `columns: {{{name!r}: ignore}}` to leave it out, or "
            f"`columns: {{{name!r}: category}}` for one feature for each text"
        )
    if summary.odd and summary.notation == "plain":
        row, text = column.find(lambda text: text == summary.odd[0][0])
        problem = (
            f"is numeric, but here it is {text!r}; correct it, set `missing_values: [{text!r}]` with `missing`, or add "
            "the column to `categorical`"
        )
        raise table.value_error(row, name, problem)
    if summary.leading_zeros and roles.numbers == "plain":
        row, text = column.find(has_leading_zero)
        raise table.value_error(
            row,
            name,
            f"has the value {text!r}; a number would lose the leading zero. Add the column to `categorical` if "
            "its values are ids, or set `numbers: point` if they are numbers",
        )
    if summary.type == "number" and summary.notation != "plain":
        row, text = column.find(lambda text: not is_number(text))
        raise table.value_error(
            row,
            name,
            f"has the value {text!r}, not a plain number such as -1234.5; set `numbers: {summary.notation}` "
            "(point: 1,234.5 and 12 %; comma: 1.234,5 €), or add the column to `categorical` or `ignore`",
        )


def parse_numbers(column: np.ndarray | TextColumn) -> np.ndarray | None:
    """Return a column as float64 [n]; None if a text is not a finite number."""
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    numbers = to_numbers(column.texts)
    return None if numbers is None else numbers[column.codes]


def require_numbers(table, name):
    """Return a column as float64 `[n]`; `InputError` for the first text that is not a finite number."""
    numbers = parse_numbers(table.columns[name])
    if numbers is None:
        row, text = table.read_texts(name).find(lambda text: not is_number(text))
        raise table.value_error(row, name, f"must be a number. Received: {text!r}")
    return numbers
