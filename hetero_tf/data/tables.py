"""From columns of numbers or texts to a `Dataset`: what kind each column is, labels, owners and the test split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import BadInput, did_you_mean, nearest
from hetero_tf.data.columns import Column, feature_names, in_order, is_number
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out

# What stands for a value that is not there.
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")
# More would make a model of mostly inputs that are 0; it is rather a text or an id.
MOST_CATEGORIES = 1000
MOST_CLASSES = 10_000


@dataclass(frozen=True)
class Sheet:
    """Rows as they were read.

    Attributes:
        source: File or folder.
        columns: `{name: numbers [n], or texts}`, all equally long.
        place: `row -> "FILE:LINE"`.
    """

    source: str
    columns: dict[str, np.ndarray | Sequence[str]]
    place: Callable[[int], str]

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Roles:
    """What the columns are for.

    Attributes:
        label: The column of labels.
        owner: The column that says from which natural client a row is; None: none does.
        ignore: Columns that are left out.
        categorical: Columns whose numbers are categories too.
        one_hot: Whether a category is a feature of its own, see `Column`.
    """

    label: str
    owner: str | None
    ignore: tuple[str, ...]
    categorical: tuple[str, ...]
    one_hot: bool


def table_dataset(
    train: Sheet, test: Sheet | None, roles: Roles, test_share: float, class_names: tuple[str, ...] | None = None
) -> Dataset:
    """Makes the data set of a table.

    Args:
        train: The training rows; without a `test`, a share of each label is held out of them for testing.
        test: The test rows; categories and labels that are not in `train` are refused.
        roles: What the columns are for.
        test_share: Size of that share.
        class_names: What may stand in the column of labels, in order; None: what stands in that of `train`.

    Raises:
        BadInput: A column is missing, or a value is missing or of another kind than those above it.
    """
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


def _kept(sheet, roles):
    """Names of the columns that become features."""
    asked = {"label": (roles.label,), "owner": (roles.owner,) if roles.owner else ()}
    asked |= {"ignore": roles.ignore, "categorical": roles.categorical}
    for option, names in asked.items():
        for name in names:
            if name not in sheet.columns:
                raise BadInput(
                    f"{sheet.source}: `{option}` must name a column. Received: {option}={name!r}"
                    f"{did_you_mean(name, sheet.columns)}"
                )
    left = [name for name in sheet.columns if name not in (roles.label, roles.owner, *roles.ignore)]
    if not left:
        raise BadInput(f"{sheet.source}: expected at least one column beside the label. Received: none")
    return left


def _same_columns(train, test):
    if list(train.columns) != list(test.columns):
        odd = sorted(train.columns.keys() ^ test.columns.keys()) or "another order"
        raise BadInput(f"{test.source}: must have the columns of {train.source}. Received: {odd} in one of them only")


def _column(sheet, name, roles):
    """The `Column` of a name: numbers, unless its values are texts or `categorical` names it."""
    if name not in roles.categorical and numbers_of(sheet, name) is not None:
        return Column(name)
    texts = texts_of(sheet, name)
    if name not in roles.categorical:
        _refuse_mixed(sheet, name, texts)
    categories = in_order(set(texts))
    if len(categories) > MOST_CATEGORIES:
        raise BadInput(
            f"{sheet.source}: column {name!r} must have at most {MOST_CATEGORIES} categories; leave it out by "
            f"`ignore`. Received: {len(categories)} different values, such as {categories[0]!r}"
        )
    return Column(name, categories, roles.one_hot)


def _refuse_mixed(sheet, name, texts):
    """Refuses a column most of whose values are numbers: a typing error would make a category of every number."""
    words = [row for row, text in enumerate(texts) if not is_number(text)]
    if 2 * len(words) < len(texts):
        raise BadInput(
            f"{sheet.place(words[0])}: column {name!r} holds numbers, but here {texts[words[0]]!r}; correct it, or "
            "name the column in `categorical`"
        )


def numbers_of(sheet: Sheet, name: str) -> np.ndarray | None:
    """A column as float64 [n]; None where it holds a text that is no finite number."""
    values = sheet.columns[name]
    if isinstance(values, np.ndarray):
        return values.astype(np.float64)
    try:
        found = np.asarray(values, np.float64)
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def texts_of(sheet: Sheet, name: str) -> list[str]:
    """A column as texts, whole numbers without a point; a missing value is refused."""
    values = sheet.columns[name]
    if not isinstance(values, np.ndarray):
        texts = list(values)
    elif values.dtype.kind == "f":
        texts = [np.format_float_positional(value, trim="-") for value in values]
    else:
        texts = [str(int(value)) for value in values]
    for row, text in enumerate(texts):
        if text.strip().lower() in MISSING:
            raise BadInput(
                f"{sheet.place(row)}: column {name!r} has no value here ({text!r}); fill it in, remove the row, or "
                "leave the column out by `ignore`"
            )
    return texts


def classes_of(sheet: Sheet, label: str) -> tuple[str, ...]:
    """The class names: the different values of the column of labels."""
    names = in_order(set(texts_of(sheet, label)))
    if len(names) > min(MOST_CLASSES, max(2, sheet.rows // 2)):
        raise BadInput(
            f"{sheet.source}: `label` must name a column of classes. Received: label={label!r} with {len(names)} "
            f"different values in {sheet.rows} rows"
        )
    return names


def owner_numbers(sheets: Sequence[Sheet], owner: str | None) -> dict[str, int]:
    """A number for each owner of all sheets, in their order."""
    if owner is None:
        return {}
    for sheet in sheets:
        if owner not in sheet.columns:
            raise BadInput(
                f"{sheet.source}: `owner` must name a column. Received: owner={owner!r}"
                f"{did_you_mean(owner, sheet.columns)}"
            )
    found = in_order({text for sheet in sheets for text in texts_of(sheet, owner)})
    return {name: number for number, name in enumerate(found)}


def _split(sheet, columns, names, roles, owners):
    """The `Split` of a sheet."""
    if not sheet.rows:
        raise BadInput(f"{sheet.source}: expected rows. Received: none")
    x = np.empty((sheet.rows, len(feature_names(columns))), np.float32)
    first = 0
    for column in columns:
        x[:, first : first + len(column.features)] = _encoded(sheet, column)
        first += len(column.features)
    y = labels_of(sheet, roles.label, names)
    return Split(x, y, owners_of(sheet, roles.owner, owners))


def labels_of(sheet: Sheet, label: str, names: Sequence[str]) -> np.ndarray:
    """Labels int32 `[n]`: numbers of the class names."""
    return _numbers(sheet, label, {name: number for number, name in enumerate(names)}, "no class of the training rows")


def owners_of(sheet: Sheet, owner: str | None, owners: dict[str, int]) -> np.ndarray | None:
    """Owners int32 `[n]`; None where no column names them."""
    return None if owner is None else _numbers(sheet, owner, owners, "no owner")


def _numbers(sheet, name, number, refused):
    texts = texts_of(sheet, name)
    for row, text in enumerate(texts):
        if text not in number:
            near = nearest(text, number)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadInput(f"{sheet.place(row)}: column {name!r} holds {text!r}, which is {refused}{hint}")
    return np.array([number[text] for text in texts], np.int32)


def _encoded(sheet, column):
    """The features of a column, [n, features]."""
    if not column.categories:
        values = numbers_of(sheet, column.name)
        if values is None:
            texts = texts_of(sheet, column.name)
            row = next(row for row, text in enumerate(texts) if not is_number(text))
            raise BadInput(f"{sheet.place(row)}: column {column.name!r} must hold a number. Received: {texts[row]!r}")
        _check_numbers(sheet, column.name, values)
        return values[:, None]
    number = {category: place for place, category in enumerate(column.categories)}
    places = _numbers(sheet, column.name, number, "no category of the training rows")
    return np.eye(len(number), dtype=np.float32)[places] if column.one_hot else places[:, None]


def _check_numbers(sheet, name, values):
    wrong = ~(np.abs(values) <= np.finfo(np.float32).max)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"{sheet.place(row)}: column {name!r} must hold finite numbers that float32 can hold. "
            f"Received: {values[row]}; correct it, remove the row, or leave the column out by `ignore`"
        )
