"""Build a `Dataset` from columns of numbers or texts: column types, labels, owners and the test split."""

import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.codecs import date, number
from hetero_tf.data.column_targets import look_up, read_numbers, read_targets
from hetero_tf.data.column_types import MAX_CATEGORIES, ColumnRoles, build_column
from hetero_tf.data.columns import CURRENCIES, Notation, is_missing, to_plain_number
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.dates import DATE_EXAMPLES, date_features, parse_date
from hetero_tf.data.held_out import held_out
from hetero_tf.data.inspection import TableSummary, inspect_table
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.targets import NUMBERS, strata

# Copies of the features in memory at peak: the table, its splits, and one during the checks.
COPIES = 3


def table_dataset(
    tables: Sequence[RawTable],
    roles: ColumnRoles,
    test_share: float,
    class_names: tuple[str, ...] | None = None,
    validation: np.ndarray | None = None,
) -> Dataset:
    """Build the data set of a table.

    Args:
        tables: The training rows, then the test rows if they are separate; otherwise a share of each label becomes the
            test split. Categories and labels of the test rows must occur in the training rows.
        roles: Roles of the columns.
        test_share: Size of that share.
        class_names: Allowed labels in order; None: the distinct labels of the training rows.
        validation: Training rows of which no fill values and categories are taken; None: none.

    Raises:
        InputError: A column is missing, or a value is missing or has another type than the rows above.
    """
    tables = [roles.mark_missing(table) for table in tables]
    feature_columns, inspection = roles.find_feature_columns(tables[0]), inspect_table(tables[0])
    _check_same_columns(tables)
    tables = [drop_rows(convert_notation(table, roles), feature_columns, roles) for table in tables]
    train = tables[0]
    is_class = roles.type_of(roles.label[0]) == "category"
    names, targets = read_targets(tables, roles.label, roles.owner, class_names, is_class, roles.targets)
    (classes,) = strata(targets[0][0])
    groups = None if roles.group is None else train.read_texts(roles.group).codes
    is_test = np.zeros(train.rows, bool) if len(tables) == 2 else held_out(classes, test_share, train.source, groups)
    rows = (
        np.arange(train.rows)
        if validation is None
        else np.delete(np.arange(train.rows), np.flatnonzero(~is_test)[validation])
    )
    fitted = train if validation is None else train.select(rows)
    fields = tuple(build_column(fitted, name, roles, ~is_test[rows]) for name in feature_columns)
    splits = [Split(_encode_features(table, fields), *target) for table, target in zip(tables, targets)]
    training, tests = splits if len(splits) == 2 else (splits[0].select(~is_test), splits[0].select(is_test))
    summary = TableSummary(_add_roles(inspection, fields, roles))
    source = f"table ({train.source})"
    return Dataset(training, tests, fields, len(names), source, class_names=names, summary=summary)


def _add_roles(inspection, fields, roles):
    """Return summaries with the types and roles that the recipe gives to the columns."""
    types = {field.name: field.describe()["codec"] for field in fields}
    return tuple(
        replace(summary, type=types.get(summary.name, summary.type), role=roles.role_of(summary.name))
        for summary in inspection
    )


def _check_same_columns(tables):
    train = tables[0]
    for table in tables[1:]:
        if list(train.columns) != list(table.columns):
            odd = sorted(train.columns.keys() ^ table.columns.keys()) or "another order"
            raise InputError(
                f"{table.source}: must have the columns of {train.source}. Received: {odd} in only one of them"
            )


def drop_rows(table: RawTable, feature_columns: Sequence[str], roles: ColumnRoles) -> RawTable:
    """Drop the rows with a missing value, if `missing` says so."""
    if roles.missing != "drop":
        return table
    columns = [name for name in (*feature_columns, *roles.label, roles.owner) if name is not None]
    is_dropped = np.any([table.missing_rows(name) for name in columns], 0)
    if is_dropped.all():
        raise InputError(f"{table.source}: `missing: drop` leaves no row, since every row has a missing value")
    return table.select(np.flatnonzero(~is_dropped)) if is_dropped.any() else table


def _encode_features(table, fields):
    """Return the features of a table, float32 [n, features]."""
    features = sum(field.codec.size for field in fields)
    check_memory(table.source, COPIES * 4 * table.rows * features)
    x, first = np.zeros((table.rows, features), np.float32), 0
    for field in fields:
        _encode(table, field.name, field.codec, x[:, first : first + field.codec.size])
        first += field.codec.size
    return x


def _encode(table, name, codec, x):
    """Write the features of a column into an array of zeros [n, features]."""
    filled = table if codec.fill is None else _fill(table, name, codec)
    if isinstance(codec, number.Codec):
        x[:, 0] = read_numbers(filled, name)
        if codec.marks_missing:
            x[:, 1] = table.missing_rows(name)
    elif isinstance(codec, date.Codec):
        x[:] = _read_dates(filled, name, codec.order)
    else:
        indices = look_up(filled, name, codec.categories, "not a category of the training rows")
        if codec.one_hot:
            x[np.arange(len(indices)), indices] = 1
        else:
            x[:, 0] = indices


def _fill(table, name, codec):
    """Return a table in which the missing values of a column are filled."""
    values, fill = table.columns[name], codec.fill
    filled: np.ndarray | TextColumn
    if isinstance(values, np.ndarray) and isinstance(codec, number.Codec):
        filled = np.where(np.isnan(values), fill, values)
    else:
        texts = TextColumn.from_numbers(values) if isinstance(values, np.ndarray) else values
        is_empty = operator.not_ if name in table.literal else is_missing
        filled = texts.map(lambda text: str(fill) if is_empty(text) else text)
    return replace(table, columns={**table.columns, name: filled})


def _read_dates(table, name, order):
    """Return the features of a column of dates, float64 [n, features]."""
    texts = table.read_texts(name)
    dates = [each for text in texts.texts if (each := parse_date(text, order))]
    if len(dates) < len(texts.texts):
        row, text = texts.find(lambda text: parse_date(text, order) is None)
        raise table.value_error(row, name, f"must be a date such as {DATE_EXAMPLES[order]}. Received: {text!r}")
    return np.array([date_features(each) for each in dates])[texts.codes]


def find_currencies(column: np.ndarray | TextColumn) -> dict[str, str]:
    """Return an amount in each currency of a column."""
    texts = column.texts[:MAX_CATEGORIES] if isinstance(column, TextColumn) else []
    return {sign: text for text in texts for sign in CURRENCIES if sign in text and any(map(str.isdigit, text))}


def convert_notation(table: RawTable, roles: ColumnRoles) -> RawTable:
    """Convert the numbers of feature columns to plain notation."""
    others = (roles.owner, roles.group, *(() if roles.targets == NUMBERS else roles.label))
    names = {name for name in table.columns if name not in others and roles.type_of(name) in (None, "number")}
    return convert_numbers(table, names, roles.numbers)


def convert_numbers(table: RawTable, names: Collection[str], notation: Notation) -> RawTable:
    """Convert the numbers of columns of texts to plain notation.

    Raises:
        InputError: A column has several currencies.
    """
    if notation == "plain":
        return table
    texts = {name: table.columns[name] for name in names if isinstance(table.columns[name], TextColumn)}
    for name, column in texts.items():
        if len(amounts := find_currencies(column)) > 1:
            row, text = column.find(amounts[min(amounts)].__eq__)
            problem = f"has the value {text!r} and other currencies; amounts in several currencies are not comparable"
            raise table.value_error(row, name, problem)
    convert = functools.partial(to_plain_number, notation=notation)
    return replace(table, columns={**table.columns, **{name: column.map(convert) for name, column in texts.items()}})
