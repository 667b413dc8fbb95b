"""Loads a table of the user: text with any delimiter, JSON, Excel, Parquet, Arrow or a folder of Hugging Face."""

from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import CountOrZero, Names, Pixels, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.data.arrow_files import ColumnSelection
from hetero_tf.data.codecs import picture
from hetero_tf.data.column_targets import read_targets
from hetero_tf.data.column_types import ColumnRoles, ColumnScales, ColumnTypes
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import hold_out
from hetero_tf.data.inspection import MAX_PICTURES, inspect_pictures, sample
from hetero_tf.data.picture_files import decode_pictures
from hetero_tf.data.raw_table import to_names
from hetero_tf.data.table_dataset import table_dataset
from hetero_tf.data.table_files import read_tables
from hetero_tf.data.targets import LABEL, LABEL_SET


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
    """Loads a file with a row for each example, or a folder of Parquet or Arrow files.

    The file is text with a delimiter, JSON (a list of objects, or an object in each line), Excel (.xlsx, with the extra
    `excel`), Parquet, Arrow or Feather; all but these three may be compressed (.gz, .bz2, .xz, .zst, .zip). The splits
    of a folder, such as one that `save_to_disk` of Hugging Face wrote, are its subfolders train and test (or val,
    validation, valid), or the files whose names begin so. Class names are taken from Hugging Face metadata if present.

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
        skip: lines above the first row, such as a title
        encoding: encoding of text, such as cp1252; null: UTF-8, or UTF-16 with a byte order mark
        validation: Training rows of which no fill values and categories are taken, see `data.load`.
    """
    if (image is None) != (size is None):
        raise InputError(f"`image` and `size` must be set together, or neither. Received: image={image!r}, size={size}")
    roles = ColumnRoles(
        *(to_names(label), owner, ignore, categorical, columns or {}, categories == "one_hot", numbers, missing),
        *(scale or {}, targets, missing_values, group),
    )
    requested = None if image is None else [name for name in (*roles.label, owner, image) if name is not None]
    selection = ColumnSelection(requested, roles.ignored, image, roles.label if targets == LABEL_SET else ())
    layout = {"header": header, "delimiter": delimiter, "skip": skip, "encoding": encoding}
    tables, names = read_tables(data_dir, path, test, selection, roles.class_label, **layout)
    if image is not None:
        return _picture_dataset(tables, roles, (image, size, channels), test_share, names)
    return table_dataset(tables, roles, test_share, names, validation)


def _picture_dataset(tables, roles, options, test_share, names):
    """Build the data set of a picture column."""
    image, *shape = options
    tables[0].check_column("image", image)
    names, targets = read_targets(tables, roles.label, roles.owner, names, targets=roles.targets)
    splits = []
    for table, target in zip(tables, targets):
        contents = ((table.locate(row), lambda data=data: data) for row, data in enumerate(table.columns[image]))
        splits.append(Split(decode_pictures(table.source, contents, table.rows, *shape), *target))
    train, test = splits if len(splits) == 2 else hold_out(splits[0], test_share, tables[0].source)
    pictures = inspect_pictures(sample(tables[0].columns[image], MAX_PICTURES))
    source = f"pictures ({tables[0].source})"
    fields = (picture.field(train.x),)
    return Dataset(train, test, fields, len(names), source, class_names=names, summary=pictures)
