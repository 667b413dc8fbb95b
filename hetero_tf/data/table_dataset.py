"""Builds a `Dataset` from columns of numbers or texts: column types, labels, owners and the test split."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetero_tf.base.errors import InputError, did_you_mean, find_nearest
from hetero_tf.data.columns import (
    Column,
    are_plain_numbers,
    has_leading_zero,
    is_number,
    resembles_number,
    sort_categories,
    to_plain_number,
)
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.unpacked import check_unpacked

# Texts that denote a missing value.
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
# A column with more distinct values is probably free text or an id; one-hot features would be almost all 0.
MAX_CATEGORIES = 1000
MAX_CLASSES = 10_000
# Copies of the features in memory at peak: the table, its splits, and one during the checks.
COPIES = 3
# Names that pandas gives to an index and to columns without a name.
_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class RawTable:
    """Unprocessed rows of a table.

    Attributes:
        source: File or folder.
        columns: `{name: numbers [n], or texts}`, all of the same length.
        locate: `row -> "FILE:LINE"`, for messages.
        file_bytes: Total size of the files.
    """

    source: str
    columns: dict[str, np.ndarray | Sequence[str]]
    locate: Callable[[int], str]
    file_bytes: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns.

    Attributes:
        label: The column of labels.
        owner: The column with the natural client of each row; None: no owners.
        ignore: Columns to leave out.
        categorical: Columns whose numbers are categories.
        one_hot: Whether categories are one-hot encoded, see `Column`.
        numbers: Number format: "plain", "point" or "comma", see `columns.plain_number`.
    """

    label: str
    owner: str | None
    ignore: tuple[str, ...]
    categorical: tuple[str, ...]
    one_hot: bool
    numbers: Literal["plain", "point", "comma"]


def table_dataset(
    train: RawTable,
    test: RawTable | None,
    roles: ColumnRoles,
    test_share: float,
    class_names: tuple[str, ...] | None = None,
) -> Dataset:
    """Builds the data set of a table.

    Args:
        train: The training rows; if `test` is None, a share of each label becomes the test split.
        test: The test rows; unknown categories and labels raise `InputError`.
        roles: Roles of the columns.
        test_share: Size of that share.
        class_names: Allowed labels in order; None: the distinct labels of `train`.

    Raises:
        InputError: A column is missing, or a value is missing or has another type than the rows above.
    """
    train, test = _convert_notation(train, roles), test and _convert_notation(test, roles)
    feature_columns = _find_feature_columns(train, roles)
    columns = tuple(_build_column(train, name, roles) for name in feature_columns)
    names = class_names or find_classes(train, roles.label)
    owners = number_owners([table for table in (train, test) if table is not None], roles.owner)
    splits = [_build_split(train, columns, names, roles, owners)]
    if test is not None:
        _check_same_columns(train, test)
        splits.append(_build_split(test, columns, names, roles, owners))
    else:
        is_test = held_out(splits[0].labels, test_share, train.source)
        splits = [splits[0].select(~is_test), splits[0].select(is_test)]
    return Dataset(splits[0], splits[1], len(names), f"table ({train.source})", class_names=names, columns=columns)


def _convert_notation(table, roles):
    """Converts the numbers of feature columns to plain notation."""
    if roles.numbers == "plain":
        return table
    others = {roles.label, roles.owner, *roles.ignore, *roles.categorical}
    columns = {
        name: values
        if name in others or isinstance(values, np.ndarray)
        else [to_plain_number(text, roles.numbers) for text in values]
        for name, values in table.columns.items()
    }
    return replace(table, columns=columns)


def _find_feature_columns(table, roles):
    """Returns the names of the columns that become features."""
    names_by_option = {"label": (roles.label,), "owner": (roles.owner,) if roles.owner else ()}
    names_by_option |= {"ignore": roles.ignore, "categorical": roles.categorical}
    for option, names in names_by_option.items():
        for name in names:
            if name not in table.columns:
                raise InputError(
                    f"{table.source}: `{option}` must name a column. Received: {option}={name!r}"
                    f"{did_you_mean(name, table.columns)}"
                )
    remaining = [name for name in table.columns if name not in (roles.label, roles.owner, *roles.ignore)]
    if not remaining:
        raise InputError(f"{table.source}: expected at least one feature column. Received: only the label")
    for name in remaining:
        if _INDEX.fullmatch(name):
            raise InputError(
                f"{table.source}: column {name!r} has no name, or is an index written by pandas; save the table with "
                f"`index=False`, or set `ignore: [{name!r}]`"
            )
    return remaining


def _check_same_columns(train, test):
    if list(train.columns) != list(test.columns):
        odd = sorted(train.columns.keys() ^ test.columns.keys()) or "another order"
        raise InputError(f"{test.source}: must have the columns of {train.source}. Received: {odd} in only one of them")


def _build_column(table, name, roles):
    """Builds a `Column`: numeric, unless it contains texts or is listed in `categorical`."""
    if name not in roles.categorical and parse_numbers(table, name) is not None:
        if roles.numbers == "plain":
            _reject_leading_zeros(table, name)
        return Column(name)
    texts, numbers = _find_distinct(table, name)
    if name not in roles.categorical:
        _reject_mixed(table, name, texts, numbers)
    categories = sort_categories(set(texts))
    if len(categories) > MAX_CATEGORIES:
        raise InputError(
            f"{table.source}: column {name!r} must have at most {MAX_CATEGORIES} categories; add it to "
            f"`ignore`. Received: {len(categories)} distinct values, such as {categories[0]!r}"
        )
    return Column(name, categories, roles.one_hot)


def _reject_mixed(table, name, texts, numbers):
    """Rejects a text column with mostly numbers: one typing error would turn every number into a category."""
    counts = np.bincount(numbers, minlength=len(texts))
    words = [number for number, text in enumerate(texts) if not is_number(text)]
    if 2 * counts[words].sum() < len(numbers):
        row = _first_row(numbers, words)
        raise InputError(
            f"{table.locate(row)}: column {name!r} is numeric, but here it is {texts[numbers[row]]!r}; correct it, or "
            "add the column to `categorical`"
        )
    resembling = [number for number, text in enumerate(texts) if resembles_number(text)]
    if 2 * counts[resembling].sum() > len(numbers):
        row = _first_row(numbers, list(set(words) & set(resembling)))
        raise InputError(
            f"{table.locate(row)}: column {name!r} has the value {texts[numbers[row]]!r}, not a plain number such as "
            "-1234.5; set `numbers: point` (for 1,234.5 and 12 %) or `numbers: comma` (for 1.234,5), or add the column "
            "to `categorical` or `ignore`"
        )


def _reject_leading_zeros(table, name):
    values = table.columns[name]
    row = (
        None
        if isinstance(values, np.ndarray)
        else next(filter(lambda at: has_leading_zero(values[at]), range(len(values))), None)
    )
    if row is not None:
        raise InputError(
            f"{table.locate(row)}: column {name!r} has the value {values[row]!r}; a number would lose the leading "
            "zero. Add the column to `categorical` if its values are ids, or set `numbers: point` if they are numbers"
        )


def parse_numbers(table: RawTable, name: str) -> np.ndarray | None:
    """Returns a column as float64 [n]; None if a text is not a finite number."""
    values = table.columns[name]
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    try:
        numbers = np.asarray(values, np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() and are_plain_numbers(values) else None


def _find_distinct(table, name):
    """Returns the distinct texts of a column and the index of each row's text [n]; rejects missing values.

    Integers become texts without a decimal point.
    """
    values = table.columns[name]
    if isinstance(values, np.ndarray):
        is_float = values.dtype.kind == "f"
        # Adding 0 turns -0 into 0.
        distinct, numbers = np.unique(values + 0.0 if is_float else values, return_inverse=True)
        texts = [np.format_float_positional(each, trim="-") if is_float else str(int(each)) for each in distinct]
    else:
        number: dict[str, int] = {}
        numbers = np.array([number.setdefault(text, len(number)) for text in values], np.int64)
        texts = list(number)
    missing = [number for number, text in enumerate(texts) if text.strip().lower() in MISSING]
    if missing:
        row = _first_row(numbers, missing)
        raise InputError(
            f"{table.locate(row)}: column {name!r} has no value here ({texts[numbers[row]]!r}); fill it in, remove the "
            "row, or add the column to `ignore`"
        )
    return texts, numbers


def _first_row(numbers, selected):
    return int(np.flatnonzero(np.isin(numbers, selected))[0])


def find_classes(table: RawTable, label: str) -> tuple[str, ...]:
    """Returns the class names: the distinct values of the label column."""
    names = sort_categories(set(_find_distinct(table, label)[0]))
    if len(names) > min(MAX_CLASSES, max(2, table.rows // 2)):
        raise InputError(
            f"{table.source}: `label` must name a column of classes. Received: label={label!r} with {len(names)} "
            f"distinct values in {table.rows} rows"
        )
    return names


def number_owners(tables: Sequence[RawTable], owner: str | None) -> dict[str, int]:
    """Numbers the owners of all tables in sorted order."""
    if owner is None:
        return {}
    for table in tables:
        if owner not in table.columns:
            raise InputError(
                f"{table.source}: `owner` must name a column. Received: owner={owner!r}"
                f"{did_you_mean(owner, table.columns)}"
            )
    owners = sort_categories({text for table in tables for text in _find_distinct(table, owner)[0]})
    return {name: number for number, name in enumerate(owners)}


def _build_split(table, columns, names, roles, owners):
    """Encodes a table as a `Split`."""
    if not table.rows:
        raise InputError(f"{table.source}: expected at least one row. Received: none")
    features = sum(column.width for column in columns)
    advice = "set `categories: numbers`, or add columns with many categories to `ignore`"
    check_unpacked(table.source, 4 * table.rows * features, table.file_bytes, COPIES, advice)
    x = np.zeros((table.rows, features), np.float32)
    first = 0
    for column in columns:
        _encode(table, column, x[:, first : first + column.width])
        first += column.width
    y = read_labels(table, roles.label, names)
    return Split(x, y, read_owners(table, roles.owner, owners))


def read_labels(table: RawTable, label: str, names: Sequence[str]) -> np.ndarray:
    """Returns labels int32 `[n]`, indices of the class names."""
    return _look_up(
        table, label, {name: number for number, name in enumerate(names)}, "not a class of the training rows"
    )


def read_owners(table: RawTable, owner: str | None, owners: dict[str, int]) -> np.ndarray | None:
    """Returns owners int32 `[n]`; None without an owner column."""
    return None if owner is None else _look_up(table, owner, owners, "not an owner")


def _look_up(table, name, number, problem):
    texts, numbers = _find_distinct(table, name)
    unknown = [position for position, text in enumerate(texts) if text not in number]
    if unknown:
        row = _first_row(numbers, unknown)
        text = texts[numbers[row]]
        near = find_nearest(text, number)
        hint = f"; did you mean {near!r}?" if near else ""
        raise InputError(f"{table.locate(row)}: column {name!r} has the value {text!r}, which is {problem}{hint}")
    return np.array([number[text] for text in texts], np.int32)[numbers]


def _encode(table, column, x):
    """Writes the features of a column into an array of zeros [n, features]."""
    if not column.categories:
        values = parse_numbers(table, column.name)
        if values is None:
            texts, numbers = _find_distinct(table, column.name)
            row = _first_row(numbers, [number for number, text in enumerate(texts) if not is_number(text)])
            raise InputError(
                f"{table.locate(row)}: column {column.name!r} must be a number. Received: {texts[numbers[row]]!r}"
            )
        _check_numbers(table, column.name, values)
        x[:, 0] = values
        return
    number = {category: index for index, category in enumerate(column.categories)}
    indices = _look_up(table, column.name, number, "not a category of the training rows")
    if column.one_hot:
        x[np.arange(len(indices)), indices] = 1
    else:
        x[:, 0] = indices


def _check_numbers(table, name, values):
    wrong = ~(np.abs(values) <= np.finfo(np.float32).max)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{table.locate(row)}: column {name!r} must be finite numbers in the range of float32. "
            f"Received: {values[row]}; correct it, remove the row, or add the column to `ignore`"
        )
