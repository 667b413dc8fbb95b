"""A person's own table or pictures in Parquet or Arrow files, or as Hugging Face's `datasets` saves them."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Pixels, TestShare
from hetero_tf.base.errors import InputError, require
from hetero_tf.data.arrow_files import find_parts, read_part
from hetero_tf.data.data_files import find
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import held_out
from hetero_tf.data.picture_arrays import decode_pictures
from hetero_tf.data.table_dataset import ColumnRoles, classes_of, labels_of, owner_numbers, owners_of, table_dataset


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

    In a folder, a folder train and a folder test (or val, validation, valid), or files whose names begin so, are the
    two splits. A column of numbers is a feature, a column of texts holds categories. Where `image` names a column of
    picture files (their bytes, or Hugging Face's bytes and path), the examples are pictures, and other columns are left
    out. The class names are Hugging Face's where the files have them. Needs pyarrow, the extra `parquet`.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the file or folder
        label: the column of labels
        image: the column of pictures; null: the examples are rows of a table
        size: height and width that every picture is resized to
        channels: of pictures, 1 (grey) or 3 (coloured)
        test: file or folder of the test rows; null: those of the folder `path`, else a share of the rows of each label
        test_share: size of that share
        owner: column that says from which natural client a row is, for the partition natural; null: none
        ignore: columns that are left out
        categorical: columns whose numbers are categories, such as postal codes
        categories: one_hot (each category is a feature of its own, 0 or 1) or numbers (a column is one feature, the
            number of its category)
        numbers: how texts write numbers: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)

    Raises:
        NotAvailable: There is no such file.
        InputError: pyarrow is not installed, a file is damaged, or a column is missing, empty somewhere or of another
            type.
        MemoryProblem: The data do not fit into memory.
    """
    require("data: parquet", ("pyarrow",), "parquet")
    if (image is None) != (size is None):
        raise InputError(
            f"`image` and `size` must be given together, or neither. Received: image={image!r}, size={size}"
        )
    wanted = None if image is None else [name for name in (label, owner, image) if name is not None]
    parts = [read_part(source, files, wanted, ignore, image) for source, files in _found(data_dir, path, test)]
    names = _class_names(parts, label)
    sheets = [_named(part.sheet, label, names) for part in parts]
    train, tests = sheets[0], sheets[1] if len(sheets) > 1 else None
    if image is not None:
        return _pictures(train, tests, (label, image, owner), (size, channels), test_share, names)
    # What is to be ignored was not read.
    roles = ColumnRoles(label, owner, (), categorical, categories == "one_hot", numbers)
    return table_dataset(train, tests, roles, test_share, names)


def _found(data_dir, path, test):
    """`(source, files)` of the training rows, and of the test rows where there are any."""
    main = find(data_dir, path, "path")
    train_files, test_files = find_parts(main)
    found = [(str(main), train_files)]
    if test is not None:
        other = find(data_dir, test, "test")
        found.append((str(other), find_parts(other)[0]))
    elif test_files is not None:
        found.append((str(main), test_files))
    return found


def _class_names(parts, label):
    """Hugging Face's names of the labels, or None."""
    told = parts[0].features.get(label)
    names = told.get("names") if isinstance(told, dict) else None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _named(sheet, label, names):
    """The sheet with names for the numbers of its labels, where there are names."""
    values = sheet.columns.get(label)
    if names is None or not isinstance(values, np.ndarray):
        return sheet
    for row, value in enumerate(values):
        if value not in range(len(names)):
            raise InputError(
                f"{sheet.place(row)}: column {label!r} must be in 0..{len(names) - 1}, since the file names so many "
                f"classes. Received: {value}"
            )
    return replace(sheet, columns={**sheet.columns, label: [names[int(value)] for value in values]})


def _pictures(train, tests, roles, shape, test_share, names):
    """The data set of a column of pictures."""
    label, image, owner = roles
    names = names or classes_of(train, label)
    owners = owner_numbers([sheet for sheet in (train, tests) if sheet is not None], owner)

    def split(sheet):
        pictures = [(sheet.place(row), lambda data=data: data) for row, data in enumerate(sheet.columns[image])]
        x = decode_pictures(sheet.source, pictures, sheet.rows, *shape)
        return Split(x, labels_of(sheet, label, names), owners_of(sheet, owner, owners))

    splits = [split(sheet) for sheet in (train, tests) if sheet is not None]
    if tests is None:
        tested = held_out(splits[0].labels, test_share, train.source)
        splits = [splits[0].of(~tested), splits[0].of(tested)]
    return Dataset(splits[0], splits[1], len(names), f"pictures ({train.source})", class_names=names)
