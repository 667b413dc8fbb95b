"""Builds a `Dataset` from columns of numbers or texts: column types, labels, owners and the test split."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

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
from hetero_tf.data.held_out import hold_out
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
        """Encodes the text of each row."""
        index: dict[str, int] = {}
        codes = np.array([index.setdefault(text, len(index)) for text in values], np.int64)
        return cls(list(index), codes)

    @classmethod
    def from_numbers(cls, values: np.ndarray) -> "TextColumn":
        """Encodes numbers as texts; integers have no decimal point."""
        is_float = values.dtype.kind == "f"
        # Adding 0 turns -0 into 0.
        distinct, codes = np.unique(values + 0.0 if is_float else values, return_inverse=True)
        texts = [np.format_float_positional(each, trim="-") if is_float else str(int(each)) for each in distinct]
        return cls(texts, codes)

    def __len__(self):
        return len(self.codes)

    def map(self, convert: Callable[[str], str]) -> "TextColumn":
        """Returns a column of converted texts."""
        converted = TextColumn.from_values(map(convert, self.texts))
        return TextColumn(converted.texts, converted.codes[self.codes])

    def find(self, matches: Callable[[str], bool]) -> tuple[int, str] | None:
        """Returns the row and the text of the first match; None if no text matches."""
        codes = [code for code, text in enumerate(self.texts) if matches(text)]
        rows = np.flatnonzero(np.isin(self.codes, codes))
        return (int(rows[0]), self.texts[self.codes[rows[0]]]) if len(rows) else None


@dataclass(frozen=True)
class RawTable:
    """Unprocessed rows of a table.

    Attributes:
        source: File or folder.
        columns: `{name: numbers [n], a TextColumn, or a list of pictures}`, all of the same length.
        locate: `row -> "FILE:LINE"`, for messages.
        file_bytes: Total size of the files.
    """

    source: str
    columns: dict[str, Any]
    locate: Callable[[int], str]
    file_bytes: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def check_column(self, option: str, name: str) -> None:
        """Raises `InputError` unless the column that an option names exists."""
        if name not in self.columns:
            raise InputError(
                f"{self.source}: `{option}` must name a column. Received: {option}={name!r}"
                f"{did_you_mean(name, self.columns)}"
            )

    def text_column(self, option: str, name: str) -> TextColumn:
        """Returns the column of texts that an option names; raises `InputError` if it is missing or has numbers."""
        self.check_column(option, name)
        if isinstance(self.columns[name], np.ndarray):
            raise InputError(
                f"{self.source}: `{option}` must name a column of texts. Received: {option}={name!r}, a column of "
                "numbers"
            )
        return self.columns[name]

    def read_texts(self, name: str) -> TextColumn:
        """Returns a column as texts; raises `InputError` for a missing value."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            column = TextColumn.from_numbers(column)
        if missing := column.find(lambda text: text.strip().lower() in MISSING):
            problem = f"has no value here ({missing[1]!r}); fill it in, remove the row, or add the column to `ignore`"
            raise self.value_error(missing[0], name, problem)
        return column

    def value_error(self, row: int, name: str, problem: str) -> InputError:
        """Returns the error about the value of a column in a row."""
        return InputError(f"{self.locate(row)}: column {name!r} {problem}")


@dataclass(frozen=True)
class ColumnRoles:
    """Roles of the columns.

    Attributes:
        label: The column of labels.
        owner: The column with the natural client of each row; None: no owners.
        ignore: Columns to leave out.
        categorical: Columns whose numbers are categories.
        one_hot: Whether categories are one-hot encoded, see `Column`.
        numbers: Number format: "plain", "point" or "comma", see `columns.to_plain_number`.
    """

    label: str
    owner: str | None
    ignore: tuple[str, ...]
    categorical: tuple[str, ...]
    one_hot: bool
    numbers: Literal["plain", "point", "comma"]


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
    tables = [_convert_notation(table, roles) for table in tables]
    train = tables[0]
    columns = tuple(_build_column(train, name, roles) for name in _find_feature_columns(train, roles))
    for table in tables[1:]:
        if list(train.columns) != list(table.columns):
            odd = sorted(train.columns.keys() ^ table.columns.keys()) or "another order"
            raise InputError(
                f"{table.source}: must have the columns of {train.source}. Received: {odd} in only one of them"
            )
    names, targets = read_targets(tables, roles.label, roles.owner, class_names)
    splits = [Split(_encode_features(table, columns), *target) for table, target in zip(tables, targets)]
    training, tests = splits if len(splits) == 2 else hold_out(splits[0], test_share, train.source)
    return Dataset(training, tests, len(names), f"table ({train.source})", class_names=names, columns=columns)


def read_targets(
    tables: Sequence[RawTable], label: str, owner: str | None, class_names: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], list[tuple[np.ndarray, np.ndarray | None]]]:
    """Reads the labels and owners of the rows.

    Args:
        tables: Tables with the same columns, the training rows first.
        label: The column of labels.
        owner: The column of owners; None: no owners.
        class_names: Class names in order; None: the distinct labels of the training rows.

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
    names = class_names or _find_classes(tables[0], label)
    labels = [_look_up(table, label, names, "not a class of the training rows") for table in tables]
    if owner is None:
        return names, [(each, None) for each in labels]
    owners = sort_categories({text for table in tables for text in table.read_texts(owner).texts})
    return names, [(each, _look_up(table, owner, owners, "not an owner")) for table, each in zip(tables, labels)]


def _find_classes(table, label):
    """Returns the class names: the distinct values of the label column."""
    names = sort_categories(set(table.read_texts(label).texts))
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


def _convert_notation(table, roles):
    """Converts the numbers of feature columns to plain notation."""
    if roles.numbers == "plain":
        return table
    others = {roles.label, roles.owner, *roles.ignore, *roles.categorical}
    columns = {
        name: column.map(lambda text: to_plain_number(text, roles.numbers))
        if name not in others and isinstance(column, TextColumn)
        else column
        for name, column in table.columns.items()
    }
    return replace(table, columns=columns)


def _find_feature_columns(table, roles):
    """Returns the names of the columns that become features."""
    names_by_option: Mapping[str, tuple] = {
        "label": (roles.label,),
        "owner": (roles.owner,) if roles.owner else (),
        "ignore": roles.ignore,
        "categorical": roles.categorical,
    }
    for option, names in names_by_option.items():
        for name in names:
            table.check_column(option, name)
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


def _build_column(table, name, roles):
    """Builds a `Column`: numeric, unless it contains texts or is listed in `categorical`."""
    is_numeric = name not in roles.categorical and _parse_numbers(table.columns[name]) is not None
    if is_numeric:
        if roles.numbers == "plain":
            _reject_leading_zeros(table, name)
        return Column(name)
    column = table.read_texts(name)
    if name not in roles.categorical:
        _reject_mixed(table, name, column)
    categories = sort_categories(set(column.texts))
    if len(categories) > MAX_CATEGORIES:
        raise InputError(
            f"{table.source}: column {name!r} must have at most {MAX_CATEGORIES} categories; add it to "
            f"`ignore`. Received: {len(categories)} distinct values, such as {categories[0]!r}"
        )
    return Column(name, categories, roles.one_hot)


def _reject_mixed(table, name, column):
    """Rejects a text column with mostly numbers: one typing error would turn every number into a category."""
    counts = np.bincount(column.codes, minlength=len(column.texts))
    is_word = np.array([not is_number(text) for text in column.texts])
    if 2 * counts[is_word].sum() < len(column):
        row, text = column.find(lambda text: not is_number(text))
        problem = f"is numeric, but here it is {text!r}; correct it, or add the column to `categorical`"
        raise table.value_error(row, name, problem)
    resembling = np.array([resembles_number(text) for text in column.texts])
    if 2 * counts[resembling].sum() > len(column):
        row, text = column.find(lambda text: resembles_number(text) and not is_number(text))
        raise table.value_error(
            row,
            name,
            f"has the value {text!r}, not a plain number such as -1234.5; set `numbers: point` (for 1,234.5 and 12 %) "
            "or `numbers: comma` (for 1.234,5), or add the column to `categorical` or `ignore`",
        )


def _reject_leading_zeros(table, name):
    column = table.columns[name]
    if isinstance(column, TextColumn) and (padded := column.find(has_leading_zero)):
        raise table.value_error(
            padded[0],
            name,
            f"has the value {padded[1]!r}; a number would lose the leading zero. Add the column to `categorical` if "
            "its values are ids, or set `numbers: point` if they are numbers",
        )


def _parse_numbers(column):
    """Returns a column as float64 [n]; None if a text is not a finite number."""
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    try:
        numbers = np.asarray(column.texts, np.float64)
    except ValueError:
        return None
    return numbers[column.codes] if np.isfinite(numbers).all() and are_plain_numbers(column.texts) else None


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
    if not column.categories:
        x[:, 0] = _read_numbers(table, column.name)
        return
    indices = _look_up(table, column.name, column.categories, "not a category of the training rows")
    if column.one_hot:
        x[np.arange(len(indices)), indices] = 1
    else:
        x[:, 0] = indices


def _read_numbers(table, name):
    """Returns a numeric column as float64 [n] in the range of float32."""
    values = _parse_numbers(table.columns[name])
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
