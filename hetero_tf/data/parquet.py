"""Loads a table or pictures of the user from Parquet or Arrow files, or from a Hugging Face `datasets` folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Names, Pixels, TestShare
from hetero_tf.base.errors import InputError
from hetero_tf.data.arrow_files import ENDINGS, ColumnSelection, read_arrow
from hetero_tf.data.codecs import picture
from hetero_tf.data.column_targets import read_targets
from hetero_tf.data.column_types import ColumnRoles, ColumnScales, ColumnTypes
from hetero_tf.data.data_files import LOADERS, TEST_NAMES, find
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.held_out import hold_out
from hetero_tf.data.inspection import MAX_PICTURES, inspect_pictures, sample
from hetero_tf.data.picture_files import decode_pictures
from hetero_tf.data.raw_table import RawTable, TextColumn, to_names
from hetero_tf.data.table_dataset import table_dataset
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
    targets=LABEL,
    validation=None,
) -> Dataset:
    """Loads a `.parquet`, `.arrow` or `.feather` file, a folder of such files, or a folder that `save_to_disk` wrote.

    The splits of a folder are its subfolders train and test (or val, validation, valid), or the files whose names begin
    so. A numeric column is one feature; a text column is categorical. If `image` names a column of picture files
    (bytes, or Hugging Face's bytes and path), the examples are pictures, and other columns are ignored. Class names are
    taken from Hugging Face metadata if present.

    Args:
        path: the file or folder
        label: the column of labels, or a list of columns of targets
        image: the column of pictures; null: the examples are rows of a table
        size: height and width to which every picture is resized
        channels: of pictures, 1 (grey) or 3 (colour)
        test: file or folder of the test rows; null: the test split of `path`, else a share of the rows of each label
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
        validation: Training rows of which no fill values and categories are taken, see `data.load`.
    """
    if (image is None) != (size is None):
        raise InputError(f"`image` and `size` must be set together, or neither. Received: image={image!r}, size={size}")
    label = to_names(label)
    requested = None if image is None else [name for name in (*label, owner, image) if name is not None]
    columns = columns or {}
    ignored = (*ignore, *(name for name, type_ in columns.items() if type_ == "ignore"))
    selection = ColumnSelection(requested, ignored, image, label if targets == LABEL_SET else ())
    has_classes = targets == LABEL and len(label) == 1
    tables, names = read_splits(data_dir, path, test, selection, label[0] if has_classes else None)
    if image is not None:
        return _picture_dataset(tables, (label, image, owner), (size, channels), test_share, names, targets)
    # Ignored columns were not read.
    types = {name: type_ for name, type_ in columns.items() if type_ != "ignore"}
    one_hot, scales = categories == "one_hot", scale or {}
    roles = ColumnRoles(
        *(label, owner, (), categorical, types, one_hot, numbers, missing, scales, targets, missing_values, group)
    )
    return table_dataset(tables, roles, test_share, names, validation)


def is_arrow(path: Path) -> bool:
    """True if `read_splits` reads a path: a folder, or a Parquet or Arrow file."""
    return path.is_dir() or path.suffix.lower() in ENDINGS


def read_splits(
    data_dir: Path | None, path: str, test: str | None, selection: ColumnSelection, label: str | None
) -> tuple[list[RawTable], tuple[str, ...] | None]:
    """Read the tables of the training rows and, if present, of the test rows.

    Args:
        data_dir, path, test, label: See `load`; without labels, `label` is None.
        selection: The columns to read.

    Returns:
        The tables, with class names as labels where Hugging Face metadata have them, and the class names or None.
    """
    splits = _source_files(data_dir, path, test)
    contents = [read_arrow(source, files, selection) for source, files in splits]
    if label is None:
        return [table for table, _ in contents], None
    names = _read_class_names(contents[0][1], splits[0][1][0].parent, label)
    return [_name_labels(table, label, names) for table, _ in contents], names


def _source_files(data_dir, path, test):
    """Return `(source, files)` of the training rows and, if present, of the test rows."""
    main = find(data_dir, path, "path")
    train_files, test_files = find_splits(main)
    if test is not None:
        other = find(data_dir, test, "test")
        return [(str(main), train_files), (str(other), find_splits(other)[0])]
    return [(str(main), files) for files in (train_files, test_files) if files is not None]


def find_splits(path: Path) -> tuple[list[Path], list[Path] | None]:
    """Return the files of the training and the test split of a file or folder; the latter may be None."""
    if not path.is_dir():
        return [path], None
    if not _list_files(path) and (path / "data").is_dir():
        path = path / "data"
    if (path / "train").is_dir():
        test_folders = [path / name for name in TEST_NAMES if (path / name).is_dir()]
        return _split_files(path / "train"), _split_files(test_folders[0]) if test_folders else None
    by_name = {
        name: [file for file in _list_files(path) if file.name.partition("-")[0].partition(".")[0] == name]
        for name in ("train", *TEST_NAMES)
    }
    if by_name["train"]:
        return by_name["train"], next((by_name[name] for name in TEST_NAMES if by_name[name]), None)
    return _split_files(path), None


def _list_files(folder):
    return sorted(file for file in folder.iterdir() if file.suffix in ENDINGS and not file.name.startswith("."))


def _split_files(folder):
    if _read_json(folder / "state.json").get("_indices_data_files"):
        raise InputError(
            f"{folder}: the data set was saved with an indices mapping; call flatten_indices() and save_to_disk() again"
        )
    # `datasets` also writes cache files into its folders.
    files = [file for file in _list_files(folder) if not file.name.startswith(("cache-", "indices-"))]
    if not files:
        raise InputError(f"{folder}: expected {' or '.join(ENDINGS)} files. Received: none; {LOADERS}")
    return files


def _read_json(path):
    """Read a mapping from a JSON file; empty if the file is missing."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is damaged: {error}") from error
    return content if isinstance(content, dict) else {}


def _read_class_names(metadata, folder, label):
    """Return the class names from Hugging Face's metadata in the schema or in dataset_info.json, or None."""
    try:
        if b"huggingface" in metadata:
            names = json.loads(metadata[b"huggingface"])["info"]["features"][label]["names"]
        else:
            names = _read_json(folder / "dataset_info.json")["features"][label]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _name_labels(table, label, names):
    """Replace numeric labels by class names, if names are known."""
    values = table.columns.get(label)
    if names is None or not isinstance(values, np.ndarray):
        return table
    invalid = np.flatnonzero(~np.isin(values, np.arange(len(names))))
    if len(invalid):
        problem = f"must be in 0..{len(names) - 1}, since the file has {len(names)} class names"
        raise table.value_error(int(invalid[0]), label, f"{problem}. Received: {values[invalid[0]]}")
    return replace(table, columns={**table.columns, label: TextColumn(list(names), values.astype(np.int64))})


def _picture_dataset(tables, roles, shape, test_share, names, form):
    """Build the data set of a picture column."""
    label, image, owner = roles
    names, targets = read_targets(tables, label, owner, names, targets=form)
    splits = []
    for table, target in zip(tables, targets):
        contents = ((table.locate(row), lambda data=data: data) for row, data in enumerate(table.columns[image]))
        splits.append(Split(decode_pictures(table.source, contents, table.rows, *shape), *target))
    train, tests = splits if len(splits) == 2 else hold_out(splits[0], test_share, tables[0].source)
    source, pictures = (
        f"pictures ({tables[0].source})",
        inspect_pictures(sample(tables[0].columns[image], MAX_PICTURES)),
    )
    return Dataset(train, tests, (picture.field(train.x),), len(names), source, class_names=names, summary=pictures)
