"""From columns of numbers or texts to a `Dataset`: what kind each column is, labels, owners and the test split."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hetero_tf.base.errors import InputError, did_you_mean, nearest
from hetero_tf.data.columns import (
    Column,
    are_plain,
    has_leading_zero,
    in_order,
    is_number,
    plain_number,
    resembles_number,
)
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.unpacked import check_unpacked

# What stands for a value that is not there.
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
# More would make a model of mostly inputs that are 0; it is rather a text or an id.
MOST_CATEGORIES = 1000
MOST_CLASSES = 10_000
# Copies of the features that are in memory at once: the table, its splits, and one more while they are checked.
COPIES = 3
# Names that pandas gives to an index and to columns without a name.
_INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class RawTable:
    """Rows as they were read.

    Attributes:
        source: File or folder.
        columns: `{name: numbers [n], or texts}`, all equally long.
        place: `row -> "FILE:LINE"`.
        file_bytes: Size of the file or files.
    """

    source: str
    columns: dict[str, np.ndarray | Sequence[str]]
    place: Callable[[int], str]
    file_bytes: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class ColumnRoles:
    """What the columns are for.

    Attributes:
        label: The column of labels.
        owner: The column that says from which natural client a row is; None: none does.
        ignore: Columns that are left out.
        categorical: Columns whose numbers are categories too.
        one_hot: Whether a category is a feature of its own, see `Column`.
        numbers: How numbers are written: "plain", or "point" or "comma", see `columns.plain_number`.
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
    """Makes the data set of a table.

    Args:
        train: The training rows; without a `test`, a share of each label is held out of them for testing.
        test: The test rows; categories and labels that are not in `train` are refused.
        roles: What the columns are for.
        test_share: Size of that share.
        class_names: What may stand in the column of labels, in order; None: what stands in that of `train`.

    Raises:
        InputError: A column is missing, or a value is missing or of another kind than those above it.
    """
    train, test = _in_plain_notation(train, roles), test and _in_plain_notation(test, roles)
    kept = _kept(train, roles)
    columns = tuple(_column(train, name, roles) for name in kept)
    names = class_names or classes_of(train, roles.label)
    owners = owner_numbers([sheet for sheet in (train, test) if sheet is not None], roles.owner)
    splits = [_split(train, columns, names, roles, owners)]
    if test is not None:
        _same_columns(train, test)
        splits.append(_split(test, columns, names, roles, owners))
    else:
        tested = held_out(splits[0].labels, test_share, train.source)
        splits = [splits[0].of(~tested), splits[0].of(tested)]
    return Dataset(splits[0], splits[1], len(names), f"table ({train.source})", class_names=names, columns=columns)


def _in_plain_notation(sheet, roles):
    """The sheet with the numbers of its features in plain notation."""
    if roles.numbers == "plain":
        return sheet
    others = {roles.label, roles.owner, *roles.ignore, *roles.categorical}
    columns = {
        name: values
        if name in others or isinstance(values, np.ndarray)
        else [plain_number(text, roles.numbers) for text in values]
        for name, values in sheet.columns.items()
    }
    return replace(sheet, columns=columns)


def _kept(sheet, roles):
    """Names of the columns that become features."""
    asked = {"label": (roles.label,), "owner": (roles.owner,) if roles.owner else ()}
    asked |= {"ignore": roles.ignore, "categorical": roles.categorical}
    for option, names in asked.items():
        for name in names:
            if name not in sheet.columns:
                raise InputError(
                    f"{sheet.source}: `{option}` must name a column. Received: {option}={name!r}"
                    f"{did_you_mean(name, sheet.columns)}"
                )
    left = [name for name in sheet.columns if name not in (roles.label, roles.owner, *roles.ignore)]
    if not left:
        raise InputError(f"{sheet.source}: expected at least one column beside the label. Received: none")
    for name in left:
        if _INDEX.fullmatch(name):
            raise InputError(
                f"{sheet.source}: column {name!r} has no name, or is an index that pandas wrote; save the table with "
                f"`index=False`, or leave the column out by `ignore: [{name!r}]`"
            )
    return left


def _same_columns(train, test):
    if list(train.columns) != list(test.columns):
        odd = sorted(train.columns.keys() ^ test.columns.keys()) or "another order"
        raise InputError(f"{test.source}: must have the columns of {train.source}. Received: {odd} in one of them only")


def _column(sheet, name, roles):
    """The `Column` of a name: numbers, unless its values are texts or `categorical` names it."""
    if name not in roles.categorical and numbers_of(sheet, name) is not None:
        if roles.numbers == "plain":
            _refuse_leading_zeros(sheet, name)
        return Column(name)
    texts, numbers = _distinct(sheet, name)
    if name not in roles.categorical:
        _refuse_mixed(sheet, name, texts, numbers)
    categories = in_order(set(texts))
    if len(categories) > MOST_CATEGORIES:
        raise InputError(
            f"{sheet.source}: column {name!r} must have at most {MOST_CATEGORIES} categories; leave it out by "
            f"`ignore`. Received: {len(categories)} different values, such as {categories[0]!r}"
        )
    return Column(name, categories, roles.one_hot)


def _refuse_mixed(sheet, name, texts, numbers):
    """Refuses a column most of whose values are numbers: a typing error would make a category of every number."""
    counts = np.bincount(numbers, minlength=len(texts))
    words = [number for number, text in enumerate(texts) if not is_number(text)]
    if 2 * counts[words].sum() < len(numbers):
        row = _first_row(numbers, words)
        raise InputError(
            f"{sheet.place(row)}: column {name!r} holds numbers, but here {texts[numbers[row]]!r}; correct it, or "
            "name the column in `categorical`"
        )
    resembling = [number for number, text in enumerate(texts) if resembles_number(text)]
    if 2 * counts[resembling].sum() > len(numbers):
        row = _first_row(numbers, list(set(words) & set(resembling)))
        raise InputError(
            f"{sheet.place(row)}: column {name!r} holds {texts[numbers[row]]!r}, which is no plain number such as "
            "-1234.5; set `numbers: point` (for 1,234.5 and 12 %) or `numbers: comma` (for 1.234,5), name the column "
            "in `categorical`, or leave it out by `ignore`"
        )


def _refuse_leading_zeros(sheet, name):
    values = sheet.columns[name]
    row = (
        None
        if isinstance(values, np.ndarray)
        else next(filter(lambda at: has_leading_zero(values[at]), range(len(values))), None)
    )
    if row is not None:
        raise InputError(
            f"{sheet.place(row)}: column {name!r} holds {values[row]!r}, whose leading zero a number would lose; name "
            "the column in `categorical` if it holds ids, or set `numbers: point` if it holds numbers"
        )


def numbers_of(sheet: RawTable, name: str) -> np.ndarray | None:
    """A column as float64 [n]; None where it holds a text that is no finite number."""
    values = sheet.columns[name]
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    try:
        found = np.asarray(values, np.float64)
    except ValueError:
        return None
    return found if np.isfinite(found).all() and are_plain(values) else None


def _distinct(sheet, name):
    """The different texts of a column, and for each row the number of its text [n]; a missing value is refused.

    Whole numbers are texts without a point.
    """
    values = sheet.columns[name]
    if isinstance(values, np.ndarray):
        is_float = values.dtype.kind == "f"
        # Adding 0 turns -0 into 0.
        different, numbers = np.unique(values + 0.0 if is_float else values, return_inverse=True)
        texts = [np.format_float_positional(each, trim="-") if is_float else str(int(each)) for each in different]
    else:
        number: dict[str, int] = {}
        numbers = np.array([number.setdefault(text, len(number)) for text in values], np.int64)
        texts = list(number)
    missing = [number for number, text in enumerate(texts) if text.strip().lower() in MISSING]
    if missing:
        row = _first_row(numbers, missing)
        raise InputError(
            f"{sheet.place(row)}: column {name!r} has no value here ({texts[numbers[row]]!r}); fill it in, remove the "
            "row, or leave the column out by `ignore`"
        )
    return texts, numbers


def _first_row(numbers, wanted):
    return int(np.flatnonzero(np.isin(numbers, wanted))[0])


def classes_of(sheet: RawTable, label: str) -> tuple[str, ...]:
    """The class names: the different values of the column of labels."""
    names = in_order(set(_distinct(sheet, label)[0]))
    if len(names) > min(MOST_CLASSES, max(2, sheet.rows // 2)):
        raise InputError(
            f"{sheet.source}: `label` must name a column of classes. Received: label={label!r} with {len(names)} "
            f"different values in {sheet.rows} rows"
        )
    return names


def owner_numbers(sheets: Sequence[RawTable], owner: str | None) -> dict[str, int]:
    """A number for each owner of all sheets, in their order."""
    if owner is None:
        return {}
    for sheet in sheets:
        if owner not in sheet.columns:
            raise InputError(
                f"{sheet.source}: `owner` must name a column. Received: owner={owner!r}"
                f"{did_you_mean(owner, sheet.columns)}"
            )
    found = in_order({text for sheet in sheets for text in _distinct(sheet, owner)[0]})
    return {name: number for number, name in enumerate(found)}


def _split(sheet, columns, names, roles, owners):
    """The `Split` of a sheet."""
    if not sheet.rows:
        raise InputError(f"{sheet.source}: expected rows. Received: none")
    features = sum(column.width for column in columns)
    advice = "set `categories: numbers`, or leave columns of many categories out by `ignore`"
    check_unpacked(sheet.source, 4 * sheet.rows * features, sheet.file_bytes, COPIES, advice)
    x = np.zeros((sheet.rows, features), np.float32)
    first = 0
    for column in columns:
        _encode(sheet, column, x[:, first : first + column.width])
        first += column.width
    y = labels_of(sheet, roles.label, names)
    return Split(x, y, owners_of(sheet, roles.owner, owners))


def labels_of(sheet: RawTable, label: str, names: Sequence[str]) -> np.ndarray:
    """Labels int32 `[n]`: numbers of the class names."""
    return _numbers(sheet, label, {name: number for number, name in enumerate(names)}, "no class of the training rows")


def owners_of(sheet: RawTable, owner: str | None, owners: dict[str, int]) -> np.ndarray | None:
    """Owners int32 `[n]`; None where no column names them."""
    return None if owner is None else _numbers(sheet, owner, owners, "no owner")


def _numbers(sheet, name, number, refused):
    texts, numbers = _distinct(sheet, name)
    unknown = [position for position, text in enumerate(texts) if text not in number]
    if unknown:
        row = _first_row(numbers, unknown)
        text = texts[numbers[row]]
        near = nearest(text, number)
        hint = f"; did you mean {near!r}?" if near else ""
        raise InputError(f"{sheet.place(row)}: column {name!r} holds {text!r}, which is {refused}{hint}")
    return np.array([number[text] for text in texts], np.int32)[numbers]


def _encode(sheet, column, x):
    """Writes the features of a column into zeros [n, features]."""
    if not column.categories:
        values = numbers_of(sheet, column.name)
        if values is None:
            texts, numbers = _distinct(sheet, column.name)
            row = _first_row(numbers, [number for number, text in enumerate(texts) if not is_number(text)])
            raise InputError(
                f"{sheet.place(row)}: column {column.name!r} must hold a number. Received: {texts[numbers[row]]!r}"
            )
        _check_numbers(sheet, column.name, values)
        x[:, 0] = values
        return
    number = {category: place for place, category in enumerate(column.categories)}
    places = _numbers(sheet, column.name, number, "no category of the training rows")
    if column.one_hot:
        x[np.arange(len(places)), places] = 1
    else:
        x[:, 0] = places


def _check_numbers(sheet, name, values):
    wrong = ~(np.abs(values) <= np.finfo(np.float32).max)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{sheet.place(row)}: column {name!r} must hold finite numbers that float32 can hold. "
            f"Received: {values[row]}; correct it, remove the row, or leave the column out by `ignore`"
        )
