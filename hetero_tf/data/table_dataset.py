"""Build a `Dataset` from columns of numbers or texts: column types, labels, owners and the test split."""

import functools
import operator
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.column_targets import look_up, read_numbers, read_targets
from hetero_tf.data.column_types import MAX_CATEGORIES, ColumnRoles, build_column
from hetero_tf.data.columns import CURRENCIES, Notation, is_missing, to_plain_number
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.dates import DATE_EXAMPLES, date_features, parse_date
from hetero_tf.data.fields import column_fields
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
    columns = tuple(build_column(fitted, name, roles, ~is_test[rows]) for name in feature_columns)
    splits = [Split(_encode_features(table, columns), *target) for table, target in zip(tables, targets)]
    training, tests = splits if len(splits) == 2 else (splits[0].select(~is_test), splits[0].select(is_test))
    summary = TableSummary(_add_roles(inspection, columns, roles))
    source = f"table ({train.source})"
    return Dataset(training, tests, column_fields(columns), len(names), source, class_names=names, summary=summary)


def _add_roles(inspection, columns, roles):
    """Return summaries with the types and roles that the recipe gives to the columns."""
    types = {column.name: column.type for column in columns}
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


def _encode_features(table, columns):
    """Return the features of a table, float32 [n, features]."""
    features = sum(column.width for column in columns)
    check_memory(table.source, COPIES * 4 * table.rows * features)
    x = np.zeros((table.rows, features), np.float32)
    first = 0
    for column in columns:
        _encode(table, column, x[:, first : first + column.width])
        first += column.width
    return x


def _encode(table, column, x):
    """Write the features of a column into an array of zeros [n, features]."""
    if column.marks_missing:
        x[:, 1] = table.missing_rows(column.name)
    table = _fill(table, column)
    if column.date:
        x[:] = _read_dates(table, column)
    elif not column.categories:
        x[:, 0] = read_numbers(table, column.name)
    else:
        indices = look_up(table, column.name, column.categories, "not a category of the training rows")
        if column.one_hot:
            x[np.arange(len(indices)), indices] = 1
        else:
            x[:, 0] = indices


def _fill(table, column):
    """Return a table in which the missing values of a column are filled."""
    if column.fill is None:
        return table
    values = table.columns[column.name]
    filled: np.ndarray | TextColumn
    if isinstance(values, np.ndarray) and not column.categories:
        filled = np.where(np.isnan(values), float(column.fill), values)
    else:
        texts = TextColumn.from_numbers(values) if isinstance(values, np.ndarray) else values
        is_empty = operator.not_ if column.name in table.literal else is_missing
        filled = texts.map(lambda text: column.fill if is_empty(text) else text)
    return replace(table, columns={**table.columns, column.name: filled})


def _read_dates(table, column):
    """Return the features of a column of dates, float64 [n, features]."""
    texts = table.read_texts(column.name)
    dates = [date for text in texts.texts if (date := parse_date(text, column.date))]
    if len(dates) < len(texts.texts):
        row, text = texts.find(lambda text: parse_date(text, column.date) is None)
        example = DATE_EXAMPLES[column.date]
        raise table.value_error(row, column.name, f"must be a date such as {example}. Received: {text!r}")
    return np.array([date_features(date) for date in dates])[texts.codes]


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
        amounts = {sign: text for text in column.texts[:MAX_CATEGORIES] for sign in CURRENCIES if sign in text}
        if len(amounts) > 1:
            row, text = column.find(amounts[min(amounts)].__eq__)
            problem = f"has the value {text!r} and other currencies; amounts in several currencies are not comparable"
            raise table.value_error(row, name, problem)
    convert = functools.partial(to_plain_number, notation=notation)
    return replace(table, columns={**table.columns, **{name: column.map(convert) for name, column in texts.items()}})
