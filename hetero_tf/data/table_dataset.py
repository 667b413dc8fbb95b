"""Builds a `Dataset` from columns of numbers or texts: column types, labels, owners and the test split."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hetero_tf.base.errors import InputError, find_nearest
from hetero_tf.data.column_types import ColumnRoles, build_column, parse_numbers
from hetero_tf.data.columns import is_missing, is_number, sort_categories, to_plain_number
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.dates import DATE_EXAMPLES, date_features, parse_date
from hetero_tf.data.held_out import held_out
from hetero_tf.data.inspection import inspect_column, inspect_table
from hetero_tf.data.raw_table import RawTable, TextColumn
from hetero_tf.data.unpacked import check_unpacked

MAX_CLASSES = 10_000
# Copies of the features in memory at peak: the table, its splits, and one during the checks.
COPIES = 3


def table_dataset(
    tables: Sequence[RawTable], roles: ColumnRoles, test_share: float, class_names: tuple[str, ...] | None = None
) -> Dataset:
    """Builds the data set of a table.

    Args:
        tables: The training rows, then the test rows if they are separate; otherwise a share of each label becomes the
            test split. Categories and labels of the test rows must occur in the training rows.
        roles: Roles of the columns.
        test_share: Size of that share.
        class_names: Allowed labels in order; None: the distinct labels of the training rows.

    Raises:
        InputError: A column is missing, or a value is missing or has another type than the rows above.
    """
    feature_columns, inspection = roles.find_feature_columns(tables[0]), inspect_table(tables[0])
    _check_same_columns(tables)
    tables = [_drop_rows(_convert_notation(table, roles), feature_columns, roles) for table in tables]
    train = tables[0]
    is_class = roles.type_of(roles.label) == "category"
    names, targets = read_targets(tables, roles.label, roles.owner, class_names, is_class)
    is_test = np.zeros(train.rows, bool) if len(tables) == 2 else held_out(targets[0][0], test_share, train.source)
    columns = tuple(build_column(train, name, roles, ~is_test) for name in feature_columns)
    splits = [Split(_encode_features(table, columns), *target) for table, target in zip(tables, targets)]
    if len(splits) == 1:
        splits = [splits[0].select(~is_test), splits[0].select(is_test)]
    source = f"table ({train.source})"
    return Dataset(*splits, len(names), source, class_names=names, columns=columns, inspection=inspection)


def _check_same_columns(tables):
    train = tables[0]
    for table in tables[1:]:
        if list(train.columns) != list(table.columns):
            odd = sorted(train.columns.keys() ^ table.columns.keys()) or "another order"
            raise InputError(
                f"{table.source}: must have the columns of {train.source}. Received: {odd} in only one of them"
            )


def _drop_rows(table, feature_columns, roles):
    """Drops the rows with a missing value, if `missing` says so."""
    if roles.missing != "drop":
        return table
    columns = [name for name in (*feature_columns, roles.label, roles.owner) if name is not None]
    is_dropped = np.any([table.missing_rows(name) for name in columns], 0)
    if is_dropped.all():
        raise InputError(f"{table.source}: `missing: drop` leaves no row, since every row has a missing value")
    return table.select(np.flatnonzero(~is_dropped)) if is_dropped.any() else table


def read_targets(
    tables: Sequence[RawTable],
    label: str,
    owner: str | None,
    class_names: tuple[str, ...] | None = None,
    numbers_are_classes: bool = False,
) -> tuple[tuple[str, ...], list[tuple[np.ndarray, np.ndarray | None]]]:
    """Reads the labels and owners of the rows.

    Args:
        tables: Tables with the same columns, the training rows first.
        label: The column of labels.
        owner: The column of owners; None: no owners.
        class_names: Class names in order; None: the distinct labels of the training rows.
        numbers_are_classes: Whether to accept labels that look like a continuous target.

    Returns:
        The class names, and of each table the labels int32 `[n]` and the owners int32 `[n]` or None. Owners are
        numbered in sorted order.

    Raises:
        InputError: A column or value is missing, or a label is not a class.
    """
    for table in tables:
        if not table.rows:
            raise InputError(f"{table.source}: expected at least one row. Received: none")
        table.check_column("label", label)
        if owner is not None:
            table.check_column("owner", owner)
    names = class_names or _find_classes(tables[0], label, numbers_are_classes)
    labels = [_look_up(table, label, names, "not a class of the training rows") for table in tables]
    if owner is None:
        return names, [(each, None) for each in labels]
    owners = sort_categories({text for table in tables for text in table.read_texts(owner).texts})
    return names, [(each, _look_up(table, owner, owners, "not an owner")) for table, each in zip(tables, labels)]


def _find_classes(table, label, numbers_are_classes):
    """Returns the class names: the distinct values of the label column."""
    column = table.read_texts(label)
    summary = inspect_column(label, column)
    if summary.is_continuous and not numbers_are_classes:
        raise InputError(
            f"{table.source}: label {label!r} has {summary.distinct:,} distinct numbers in {table.rows:,} rows, from "
            f"{summary.low} to {summary.high}: a continuous target; set `task: regression`, or `columns: "
            f"{{{label!r}: category}}` if the numbers are names of classes"
        )
    names = sort_categories(set(column.texts))
    if len(names) > min(MAX_CLASSES, max(2, table.rows // 2)):
        raise InputError(
            f"{table.source}: `label` must name a column of classes. Received: label={label!r} with {len(names)} "
            f"distinct values in {table.rows} rows"
        )
    return names


def _look_up(table, name, known, problem):
    """Returns the index of each row's text in `known`, int32 [n]."""
    column, index = table.read_texts(name), {text: number for number, text in enumerate(known)}
    if unknown := column.find(lambda text: text not in index):
        near = find_nearest(unknown[1], index)
        hint = f"; did you mean {near!r}?" if near else ""
        raise table.value_error(unknown[0], name, f"has the value {unknown[1]!r}, which is {problem}{hint}")
    return np.array([index[text] for text in column.texts], np.int32)[column.codes]


def _encode_features(table, columns):
    """Returns the features of a table, float32 [n, features]."""
    features = sum(column.width for column in columns)
    advice = "set `categories: numbers`, or add columns with many categories to `ignore`"
    check_unpacked(table.source, 4 * table.rows * features, table.file_bytes, COPIES, advice)
    x = np.zeros((table.rows, features), np.float32)
    first = 0
    for column in columns:
        _encode(table, column, x[:, first : first + column.width])
        first += column.width
    return x


def _encode(table, column, x):
    """Writes the features of a column into an array of zeros [n, features]."""
    if column.marks_missing:
        x[:, 1] = table.missing_rows(column.name)
    table = _fill(table, column)
    if column.date:
        x[:] = _read_dates(table, column)
    elif not column.categories:
        x[:, 0] = _read_numbers(table, column.name)
    else:
        indices = _look_up(table, column.name, column.categories, "not a category of the training rows")
        if column.one_hot:
            x[np.arange(len(indices)), indices] = 1
        else:
            x[:, 0] = indices


def _fill(table, column):
    """Returns a table in which the missing values of a column are filled."""
    if column.fill is None:
        return table
    values = table.columns[column.name]
    if isinstance(values, np.ndarray) and not column.categories:
        filled = np.where(np.isnan(values), float(column.fill), values)
    else:
        texts = TextColumn.from_numbers(values) if isinstance(values, np.ndarray) else values
        filled = texts.map(lambda text: column.fill if is_missing(text) else text)
    return replace(table, columns={**table.columns, column.name: filled})


def _read_dates(table, column):
    """Returns the features of a column of dates, float64 [n, features]."""
    texts = table.read_texts(column.name)
    dates = [parse_date(text, column.date) for text in texts.texts]
    if None in dates:
        row, text = texts.find(lambda text: parse_date(text, column.date) is None)
        example = DATE_EXAMPLES[column.date]
        raise table.value_error(row, column.name, f"must be a date such as {example}. Received: {text!r}")
    return np.array([date_features(date) for date in dates])[texts.codes]


def _read_numbers(table, name):
    """Returns a numeric column as float64 [n] in the range of float32."""
    table.check_complete(name)
    values = parse_numbers(table.columns[name])
    if values is None:
        row, text = table.read_texts(name).find(lambda text: not is_number(text))
        raise table.value_error(row, name, f"must be a number. Received: {text!r}")
    invalid = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(invalid):
        raise table.value_error(
            int(invalid[0]),
            name,
            f"must be finite numbers in the range of float32. Received: {values[invalid[0]]}; correct it, remove the "
            "row, or add the column to `ignore`",
        )
    return values


def _convert_notation(table, roles):
    """Converts the numbers of feature columns to plain notation."""
    if roles.numbers == "plain":
        return table
    targets = (roles.label, roles.owner)
    columns = {
        name: column.map(lambda text: to_plain_number(text, roles.numbers))
        if name not in targets and roles.type_of(name) in (None, "number") and isinstance(column, TextColumn)
        else column
        for name, column in table.columns.items()
    }
    return replace(table, columns=columns)
