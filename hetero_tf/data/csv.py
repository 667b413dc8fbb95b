"""Load a table of the user: text with any delimiter, JSON, Excel, Parquet, Arrow or a folder of Hugging Face."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hetero_tf.base.constraints import CountOrZero, Names, Pixels, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data import column_types
from hetero_tf.data.codecs import date, number, picture
from hetero_tf.data.column_types import ColumnScales, ColumnTypes
from hetero_tf.data.columns import to_names
from hetero_tf.data.dataset import Dataset, Split, held_out, hold_out
from hetero_tf.data.dates import DATE_EXAMPLES, date_features, parse_date
from hetero_tf.data.decoded import decode_blocks
from hetero_tf.data.inspection import TableSummary, describe_pictures, inspect_table
from hetero_tf.data.picture_files import decode_pixels
from hetero_tf.data.table_files import read_tables
from hetero_tf.data.targets import LABEL, strata

# Copies of the features in memory at peak: the table, its splits, and one during the checks.
COPIES = 3


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: Names = ("label",),
    image: str | None = None,
    size: Pixels | None = None,
    channels: Literal[1, 3] = 3,
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    group: str | None = None,
    columns: ColumnTypes | None = None,
    ignore: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    categories: Literal["one_hot", "numbers"] = "one_hot",
    numbers: Literal["plain", "point", "comma"] = "plain",
    missing: Literal["error", "mean", "median", "most_frequent", "category", "drop"] = "error",
    missing_values: tuple[str, ...] = (),
    scale: ColumnScales | None = None,
    header: bool = True,
    delimiter: Literal["comma", "semicolon", "tab", "pipe", "space"] | None = None,
    skip: CountOrZero = 0,
    encoding: str | None = None,
    targets=LABEL,
    validation=None,
) -> Dataset:
    """Load a file with a row for each example, or a folder of Parquet or Arrow files.

    The file is text with a delimiter, JSON (a list of objects, or an object in each line), Excel (.xlsx, with the extra
    `excel`), Parquet, Arrow or Feather. Text and JSON may be compressed (.gz, .bz2, .xz, .zst, .zip). A title above the
    names of the columns, comments and repeated names are left out with a warning. The splits of a folder, such as one
    that `save_to_disk` of Hugging Face wrote, are its subfolders train and test (or val, validation, valid), or the
    files whose names begin so. Class names are taken from Hugging Face metadata if present.

    A numeric column is one feature; a column of other texts is categorical, unless they differ in most rows, like
    names, which are rejected. The distinct values of the label column are the class names. For the task regression the
    label columns are numbers. For multi_label one column has lists such as `red;large`, or several columns have 0 and
    1, one for each label. Without a header the columns are named column_0, column_1 and so on. If `image` names a
    column of picture files (bytes, or Hugging Face's bytes and path), the examples are pictures, and other columns are
    ignored.

    Args:
        path: the file or folder
        label: the column of labels, or a list of columns of targets
        image: the column of pictures of a Parquet or Arrow file; null: the examples are rows of a table
        size: height and width to which every picture is resized
        channels: of pictures, 1 (grey) or 3 (colour)
        test: file or folder of the test rows, with the same columns; null: the test split of `path`, else a share of
            the rows of each label
        test_share: size of that share
        owner: column with the natural client of each row, for the partition natural; null: none
        group: column of groups, such as patients, whose rows stay together in training or test; null: rows are drawn
        columns: types of columns, such as {price: number, zip: category, joined: date, id: ignore}; date: the year,
            month, day and weekday as features; null: types follow from the values
        ignore: columns to leave out
        categorical: columns whose numbers are categories, such as postal codes
        categories: encoding of categories: one_hot (one 0/1 feature for each category) or numbers (one feature for the
            column, the index of the category)
        numbers: number format of texts: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 € and 12 %)
        missing: treatment of missing values (empty, NA, null): error, drop (the row), or a value of the training rows
            that replaces them: mean, median or most_frequent (also of categories), or category (a category `missing`;
            for numbers the mean and a 0/1 feature)
        missing_values: further texts or numbers that denote a missing value, such as [unknown, "-999"]
        scale: scaling of columns, such as {age: minmax}: standard (mean 0 and deviation 1, that of all others), minmax
            (0 to 1) or none; null: standard for all
        header: whether the first row contains the column names
        delimiter: separator of values; null: detected from the first rows
        skip: lines above the first row
        encoding: encoding of text, such as cp1252; null: UTF-8, or UTF-16 with a byte order mark
        validation: Training rows of which no fill values and categories are taken, see `data.load`.
    """
    if (image is None) != (size is None):
        raise InputError(f"`image` and `size` must be set together, or neither. Received: image={image!r}, size={size}")
    roles = column_types.ColumnRoles(
        *(to_names(label), owner, group, ignore, categorical, columns or {}, categories == "one_hot", numbers),
        *(missing, missing_values, scale or {}, targets),
    )
    layout = {"header": header, "delimiter": delimiter, "skip": skip, "encoding": encoding}
    # Examples that are pictures have no other features.
    read = None if image is None else (*roles.label, owner, image)
    tables, names = read_tables(data_dir, path, test, read, roles.class_column, **layout)
    if image is None:
        return _table_dataset(tables, roles, test_share, names, validation)
    return _picture_dataset(tables, roles, image, (size, channels), test_share, names)


def _picture_dataset(tables, roles, image, form, test_share, names):
    size, channels = form
    decode = functools.partial(decode_pixels, size=size, channels=channels)
    tables[0].check_columns(image=image)
    if not isinstance(tables[0].columns[image], list):
        raise InputError(f"{tables[0].source}: `image` must name a column of picture files. Received: image={image!r}")
    names, targets = column_types.read_targets(tables, roles.label, roles.owner, names, targets=roles.targets)
    splits = []
    for table, target in zip(tables, targets):
        contents = ((table.locate(row), lambda data=data: data) for row, data in enumerate(table.columns[image]))
        # The blocks and their concatenation are in memory at once.
        check_memory(table.source, 2 * table.rows * size**2 * channels)
        splits.append(Split(np.concatenate(list(decode_blocks(contents, decode))), *target))
    train, test = splits if len(splits) == 2 else hold_out(splits[0], test_share, tables[0].source)
    pictures = describe_pictures(tables[0].columns[image])
    source = f"pictures ({tables[0].source})"
    fields = (picture.field(train.x),)
    return Dataset(train, test, fields, len(names), source, class_names=names, summary=pictures)


def _table_dataset(tables, roles, test_share, class_names, validation):
    names = roles.find_feature_columns(tables[0])
    first = roles.prepare(tables[0])
    tables = [first, *(roles.prepare(table, first.plain) for table in tables[1:])]
    used = [[column for column in table.columns if roles.type_of(column) != "ignore"] for table in tables]
    for table, present in zip(tables, used):
        if present != used[0]:
            odd = sorted({*present} ^ {*used[0]}) or "another order"
            raise InputError(
                f"{table.source}: must have the columns of {tables[0].source}. Received: {odd} in only one of them"
            )
    summaries = inspect_table(tables[0])
    if roles.missing == "drop":
        tables = [table.drop_missing([*names, *roles.label, roles.owner]) for table in tables]
    train = tables[0]
    is_class = roles.type_of(roles.label[0]) == "category"
    classes, targets = column_types.read_targets(tables, roles.label, roles.owner, class_names, is_class, roles.targets)
    (groups_of_classes,) = strata(targets[0][0])
    groups = None if roles.group is None else train.read_texts(roles.group).codes
    is_test = np.zeros(train.rows, bool)
    if len(tables) == 1:
        is_test = held_out(groups_of_classes, test_share, train.source, groups)
    rows = np.arange(train.rows)
    if validation is not None:
        rows = np.delete(rows, np.flatnonzero(~is_test)[validation])
    fitted = train if validation is None else train.select(rows)
    fields = tuple(column_types.build_column(fitted, name, roles, ~is_test[rows], summaries[name]) for name in names)
    splits = [Split(_encode_features(table, fields), *target) for table, target in zip(tables, targets)]
    training, tests = splits if len(splits) == 2 else (splits[0].select(~is_test), splits[0].select(is_test))
    types = {field.name: field.describe()["codec"] for field in fields}
    columns = (replace(s, type=types.get(s.name, s.type), role=roles.role_of(s.name)) for s in summaries.values())
    summary = TableSummary(tuple(columns))
    source = f"table ({train.source})"
    return Dataset(training, tests, fields, len(classes), source, class_names=classes, summary=summary)


def _encode_features(table, fields):
    features = sum(field.codec.size for field in fields)
    check_memory(table.source, COPIES * 4 * table.rows * features)
    x, first = np.zeros((table.rows, features), np.float32), 0
    for name, codec in ((field.name, field.codec) for field in fields):
        filled = table if codec.fill is None else table.fill(name, codec.fill)
        if isinstance(codec, number.Codec):
            x[:, first] = column_types.read_numbers(filled, name)
            if codec.marks_missing:
                x[:, first + 1] = table.missing_rows(name)
        elif isinstance(codec, date.Codec):
            parse: Any = functools.cache(functools.partial(parse_date, order=codec.order))
            texts = filled.require(name, parse, f"a date such as {DATE_EXAMPLES[codec.order]}")
            x[:, first : first + codec.size] = np.array(list(map(date_features, map(parse, texts.texts))))[texts.codes]
        else:
            indices = column_types.look_up(filled, name, codec.categories, "not a category of the training rows")
            if codec.one_hot:
                x[np.arange(len(indices)), first + indices] = 1
            else:
                x[:, first] = indices
        first += codec.size
    return x
