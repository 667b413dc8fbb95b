"""Loads a table or pictures of the user from Parquet or Arrow files, or from a Hugging Face `datasets` folder."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Pixels, TestShare
from hetero_tf.base.errors import InputError, require_modules
from hetero_tf.data.arrow_files import find_splits, read_split
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.picture_arrays import decode_pictures
from hetero_tf.data.table_dataset import (
    ColumnRoles,
    find_classes,
    number_owners,
    read_labels,
    read_owners,
    table_dataset,
)


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: str = "label",
    image: str | None = None,
    size: Pixels | None = None,
    channels: Literal[1, 3] = 3,
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    ignore: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    categories: Literal["one_hot", "numbers"] = "one_hot",
    numbers: Literal["plain", "point", "comma"] = "plain",
) -> Dataset:
    """Loads a `.parquet` or `.arrow` file, a folder of such files, or a folder that `save_to_disk` wrote.

    The splits of a folder are its subfolders train and test (or val, validation, valid), or the files whose names begin
    so. A numeric column is one feature; a text column is categorical. If `image` names a column of picture files
    (bytes, or Hugging Face's bytes and path), the examples are pictures, and other columns are ignored. Class names are
    taken from Hugging Face metadata if present. Needs pyarrow, the extra `parquet`.

    Args:
        data_dir: Folder that is searched for a relative path before the working folder; None: the working folder only.
        path: the file or folder
        label: the column of labels
        image: the column of pictures; null: the examples are rows of a table
        size: height and width to which every picture is resized
        channels: of pictures, 1 (grey) or 3 (colour)
        test: file or folder of the test rows; null: the test split of `path`, else a share of the rows of each label
        test_share: size of that share
        owner: column with the natural client of each row, for the partition natural; null: none
        ignore: columns to leave out
        categorical: columns whose numbers are categories, such as postal codes
        categories: encoding of categories: one_hot (one 0/1 feature for each category) or numbers (one feature for the
            column, the index of the category)
        numbers: number format of texts: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)

    Raises:
        NotAvailable: The file does not exist.
        InputError: pyarrow is not installed, a file is damaged, or a column is missing, has missing values or another
            type.
        MemoryProblem: The data do not fit into memory.
    """
    require_modules("data: parquet", ("pyarrow",), "parquet")
    if (image is None) != (size is None):
        raise InputError(f"`image` and `size` must be set together, or neither. Received: image={image!r}, size={size}")
    selected = None if image is None else [name for name in (label, owner, image) if name is not None]
    splits = [
        read_split(source, files, selected, ignore, image) for source, files in _source_files(data_dir, path, test)
    ]
    names = _read_class_names(splits, label)
    tables = [_name_labels(part.table, label, names) for part in splits]
    train, tests = tables[0], tables[1] if len(tables) > 1 else None
    if image is not None:
        return _build_picture_dataset(train, tests, (label, image, owner), (size, channels), test_share, names)
    # Ignored columns were not read.
    roles = ColumnRoles(label, owner, (), categorical, categories == "one_hot", numbers)
    return table_dataset(train, tests, roles, test_share, names)


def _source_files(data_dir, path, test):
    """Returns `(source, files)` of the training rows and, if present, of the test rows."""
    main = find(data_dir, path, "path")
    train_files, test_files = find_splits(main)
    sources = [(str(main), train_files)]
    if test is not None:
        other = find(data_dir, test, "test")
        sources.append((str(other), find_splits(other)[0]))
    elif test_files is not None:
        sources.append((str(main), test_files))
    return sources


def _read_class_names(splits, label):
    """Returns the class names from Hugging Face metadata, or None."""
    feature = splits[0].features.get(label)
    names = feature.get("names") if isinstance(feature, dict) else None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _name_labels(table, label, names):
    """Replaces numeric labels by class names, if names are known."""
    values = table.columns.get(label)
    if names is None or not isinstance(values, np.ndarray):
        return table
    for row, value in enumerate(values):
        if value not in range(len(names)):
            raise InputError(
                f"{table.locate(row)}: column {label!r} must be in 0..{len(names) - 1}, since the file has "
                f"{len(names)} class names. Received: {value}"
            )
    return replace(table, columns={**table.columns, label: [names[int(value)] for value in values]})


def _build_picture_dataset(train, tests, roles, shape, test_share, names):
    """Builds the data set of a picture column."""
    label, image, owner = roles
    names = names or find_classes(train, label)
    owners = number_owners([table for table in (train, tests) if table is not None], owner)

    def split(table):
        pictures = [(table.locate(row), lambda data=data: data) for row, data in enumerate(table.columns[image])]
        x = decode_pictures(table.source, pictures, table.rows, *shape)
        return Split(x, read_labels(table, label, names), read_owners(table, owner, owners))

    splits = [split(table) for table in (train, tests) if table is not None]
    if tests is None:
        is_test = held_out(splits[0].labels, test_share, train.source)
        splits = [splits[0].select(~is_test), splits[0].select(is_test)]
    return Dataset(splits[0], splits[1], len(names), f"pictures ({train.source})", class_names=names)
