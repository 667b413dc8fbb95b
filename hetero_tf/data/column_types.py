"""Types of a table's columns, from the options of a recipe, else from the values; and targets and owners of rows."""

import ast
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

from hetero_tf.base.constraints import Text
from hetero_tf.base.errors import InputError, find_nearest, shorten_repr
from hetero_tf.data.codecs import Field, category, date, number
from hetero_tf.data.columns import (
    Notation,
    RawTable,
    Scale,
    TextColumn,
    find_currencies,
    is_missing,
    is_number,
    normalize,
    sort_categories,
    to_numbers,
    to_plain_number,
)
from hetero_tf.data.dates import DATE_EXAMPLES, DateOrder, date_orders, parse_date
from hetero_tf.data.inspection import ColumnSummary, are_coarse, inspect_column
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

    @property
    def class_column(self) -> str | None:
        """The column of classes; None for other targets."""
        return self.label[0] if self.targets == LABEL and len(self.label) == 1 else None

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

    def prepare(self, table: RawTable, plain: frozenset[str] | None = None) -> RawTable:
        """Return a table with marked missing values, whose features have numbers in plain notation.

        Columns of declared categories keep texts such as NA. For `plain` see `convert_numbers`.
        """
        literal = frozenset(name for name in table.columns if self.type_of(name) == "category")
        table = replace(table, literal=literal).mark_missing(self.missing_values)
        others = (self.owner, self.group, *(() if self.targets == NUMBERS else self.label))
        names = [name for name in table.columns if name not in others and self.type_of(name) in (None, "number")]
        return convert_numbers(table, names, self.numbers, plain)

    def find_feature_columns(self, table: RawTable) -> list[str]:
        """Return the names of the columns that become features.

        Raises:
            InputError: An option names a column that does not exist or has another role, a feature has neither numbers,
                texts nor dates, or none is left.
        """
        table.check_columns(label=self.label, owner=self.owner, group=self.group, ignore=self.ignore)
        table.check_columns(categorical=self.categorical, columns=self.types, scale=self.scale)
        table.check_types(name for name in table.odd_types if self.role_of(name) == "feature")
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


def convert_numbers(
    table: RawTable, names: Iterable[str], notation: Notation, plain: frozenset[str] | None = None
) -> RawTable:
    """Convert the numbers of columns of texts to plain notation.

    Args:
        table, names: The table and the names of the columns.
        notation: Notation of the texts.
        plain: Columns of plain numbers; None: in a table of decimal commas, those with 48.1, and thus also 48.137.

    Raises:
        InputError: A column has several currencies.
    """
    if notation == "plain":
        return table
    columns = dict(table.columns)
    texts = {name: columns[name] for name in names if isinstance(columns[name], TextColumn)}
    if plain is None:
        plain = frozenset(name for name, each in texts.items() if notation == "comma" and _has_points(each.texts))
    for name, column in texts.items():
        if len(amounts := find_currencies(column.texts)) > 1:
            text = amounts[min(amounts)]
            raise table.value_error(
                column.row_of(text), name, f"has {text!r} and amounts in several currencies, which do not compare"
            )
        if name not in plain:
            columns[name] = column.map(functools.partial(to_plain_number, notation=notation))
    return replace(table, columns=columns, plain=plain)


def _has_points(texts):
    texts = [text for text in texts if not is_missing(text)]
    return any(to_plain_number(text, "comma") == text for text in texts) and to_numbers(texts) is not None


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

    Raises:
        InputError: The values have another type, or no type is likely.
    """
    for decision in summary.decisions if roles.type_of(name) is None else ():
        if decision.is_required:
            value = f"{{{name!r}: {decision.value}}}" if decision.option == "columns" else decision.value
            problem = f"has {decision.reason}; set `{decision.option}: {value}`, or another type in `columns`"
            column, text = TextColumn.of(table.columns[name]), decision.text
            where = table.locate(column.row_of(text)) if text in column.texts else table.source
            raise InputError(f"{where}: column {name!r} {problem}")
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


def _infer_codec(table, name, roles, summary):
    """Return a codec without a fill value from rows without missing values in the column."""
    kind = roles.type_of(name)
    listed = () if kind == "category" else tuple(map(normalize, roles.missing_values))
    if kind == "number" or (kind is None and summary.type in ("number", "id")):
        return number.Codec(notation="plain" if name in table.plain else roles.numbers, missing_values=listed)
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
    texts = table.read_texts(name).texts
    orders = date_orders(texts)
    if len(orders) == 1:
        return orders[0]
    if not orders:
        likely = max(DATE_EXAMPLES, key=lambda order: sum(parse_date(text, order) is not None for text in texts))
        examples = ", ".join(DATE_EXAMPLES.values())
        table.require(name, functools.partial(parse_date, order=likely), f"a date such as {examples}")
    raise InputError(
        f"{table.source}: column {name!r} must say which number is the day, but no day is above 12; save the dates "
        f"like {DATE_EXAMPLES['ymd']}. Received: {texts[0]!r}"
    )


def _fill_value(table, name, codec, missing, is_training):
    """Return the number or text that replaces a missing value, from the values of the training rows."""
    if isinstance(codec, number.Codec):
        numbers = read_numbers(table, name)[is_training]
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


# Texts of the columns of label sets.
FLAGS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}


def read_targets(
    tables: Sequence[RawTable],
    label: tuple[str, ...],
    owner: str | None,
    class_names: tuple[str, ...] | None = None,
    numbers_are_classes: bool = False,
    targets: str = LABEL,
) -> tuple[tuple[str, ...], list[tuple[np.ndarray, np.ndarray | None]]]:
    """Read the targets and owners of the rows.

    Args:
        tables: Tables with the same columns, the training rows first.
        label: The column of labels, or the columns of targets.
        owner: The column of owners; None: no owners.
        class_names: Class names in order; None: the distinct labels of the training rows.
        numbers_are_classes: Whether to accept labels that look like a continuous target.
        targets: "label", "numbers" or "label_set", see `targets`.

    Returns:
        The names of the classes or targets, and of each table the targets and the owners int32 `[n]` or None. Owners
        are numbered in sorted order.

    Raises:
        InputError: A column or value is missing, or a label is not a class.
    """
    for table in tables:
        table.check_columns(label=label, owner=owner)
        table.check_types(filter(None, [*label, owner]), allows_lists=targets == LABEL_SET)
        if not table.rows:
            raise InputError(f"{table.source}: expected at least one row. Received: none")
        if len(set(label)) < len(label):
            raise InputError(f"{table.source}: `label` must name each column once. Received: {', '.join(label)}")
        if targets == LABEL and len(label) > 1:
            raise InputError(
                f"{table.source}: `label` must name one column of classes; several columns are targets of the tasks "
                f"regression and multi_label. Received: {', '.join(label)}"
            )
    if targets == NUMBERS:
        names = label
        values = [np.stack([read_numbers(table, name) for name in label], 1).astype(np.float32) for table in tables]
    elif targets == LABEL_SET and len(label) > 1:
        names, values = label, [np.stack([_read_flags(table, name) for name in label], 1) for table in tables]
    elif targets == LABEL_SET:
        names, values = _read_label_sets(tables, label[0], class_names)
    else:
        names = class_names or _find_classes(tables[0], label[0], numbers_are_classes)
        values = [look_up(table, label[0], names, "not a class of the training rows") for table in tables]
    if owner is None:
        return names, [(each, None) for each in values]
    owners = sort_categories({text for table in tables for text in table.read_texts(owner).texts})
    return names, [(each, look_up(table, owner, owners, "not an owner")) for table, each in zip(tables, values)]


def _find_classes(table, label, numbers_are_classes):
    column = table.read_texts(label)
    names, is_continuous = sort_categories(set(column.texts)), inspect_column(label, column).is_continuous
    if (is_continuous and not numbers_are_classes) or len(names) > max(2, table.rows // 2):
        raise InputError(
            f"{table.source}: `label` must name a column of classes; to predict its numbers, set `task: regression`, "
            f"or `columns: {{{label!r}: category}}` if they are names of classes. Received: label={label!r} with "
            f"{len(names)} distinct values in {table.rows} rows, such as {names[0]!r}"
        )
    return names


def _read_label_sets(tables, name, class_names):
    """Return the labels and the sets bool [n, labels] of each table, of a column with lists."""
    # An empty list is a set without labels.
    columns = [
        TextColumn.of(table.columns[name]).map(lambda text: "" if is_missing(text) and text != "none" else text)
        for table in tables
    ]
    signs = find_separators(columns[0].texts)
    if signs is None:
        raise InputError(
            f"{tables[0].source}: column {name!r} separates labels by different signs; use `;` in all of its lists. "
            f"Received: {shorten_repr(next(text for text in columns[0].texts if ',' in text))}"
        )
    names = class_names or sort_categories({each for text in columns[0].texts for each in split_labels(text, signs)})
    if len(names) < 2:
        raise InputError(
            f"{tables[0].source}: `label` must name one column with lists such as `red;large`, or several columns with "
            f"0 and 1. Received: label={name!r} with {len(names)} distinct labels"
        )
    sets = []
    for table, column in zip(tables, columns):
        labels = [split_labels(text, signs) for text in column.texts]
        unknown = ((text, label) for text, each in zip(column.texts, labels) for label in each if label not in names)
        for text, label in unknown:
            problem = f"has the label {label!r}, which no training row has"
            raise table.value_error(column.row_of(text), name, problem)
        sets.append(np.array([[label in each for label in names] for each in labels], bool)[column.codes])
    return names, sets


def find_separators(texts: Sequence[str]) -> str | None:
    """Return the signs that separate the labels of lists; "" for a single label each; None if signs are mixed.

    Semicolons, bars and commas always separate labels. A slash, a new line or a space does so if all parts also occur
    alone, as in "red large" beside "red" and "large". Lists in brackets have their own notation.
    """
    texts = [text for text in texts if not _is_bracketed(text)]
    if signs := [sign for sign in ";|," if any(sign in text for text in texts)]:
        return None if "," in signs and len(signs) > 1 else "".join(signs)
    for sign in "\n/ ":
        lists = [text for text in texts if sign in text.strip()]
        if lists and {part.strip() for text in lists for part in text.split(sign)} <= {*texts, ""}:
            return sign
    return ""


def _is_bracketed(text):
    return text[:1] + text[-1:] in ("[]", "{}", "()")


def split_labels(text: str, signs: str) -> list[str]:
    """Return the labels of a list such as `red; large` or `['red', 'large']`."""
    if _is_bracketed(text):
        try:
            parts = [str(part) for part in ast.literal_eval(text)]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            parts = [part.strip(" '\"") for part in text[1:-1].split(",")]
    else:
        parts = re.split(f"[{re.escape(signs)}]", text) if signs else [text]
    return [normalize(part) for part in parts if part.strip()]


def _read_flags(table, name):
    """Return a column of 0 and 1, or false and true, as bool [n]."""
    column = table.require(name, lambda text: text.strip().lower() in FLAGS, "0 or 1")
    return np.array([FLAGS[text.strip().lower()] for text in column.texts], bool)[column.codes]


def look_up(table, name, known, problem):
    """Return the index of each row's text in `known`, int32 `[n]`.

    Raises:
        InputError: A text is unknown; `problem` says so.
    """
    column, index = table.read_texts(name), {text: number for number, text in enumerate(known)}
    if unknown := column.find(lambda text: text not in index):
        near = find_nearest(unknown[1], index)
        hint = f"; did you mean {near!r}?" if near else ""
        raise table.value_error(unknown[0], name, f"has the value {unknown[1]!r}, which is {problem}{hint}")
    return np.array([index[text] for text in column.texts], np.int32)[column.codes]


def read_numbers(table, name):
    """Return a numeric column as float64 `[n]` in the range of float32.

    Raises:
        InputError: A value is missing, or not such a number.
    """
    table.check_complete(name)
    values: Any = parse_numbers(table.columns[name])
    if values is None:
        table.require(name, is_number, "a number")
    invalid = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(invalid):
        problem = f"must be finite numbers in the range of float32. Received: {values[invalid[0]]}"
        raise table.value_error(int(invalid[0]), name, f"{problem}; set `missing_values`, or add it to `ignore`")
    if are_coarse(values):
        raise InputError(
            f"{table.source}: column {name!r} has numbers such as {values[0]:.17g}, whose differences are too small "
            "for float32; subtract a constant, use times as `time` of `data: series`, or add the column to `ignore`"
        )
    return values
