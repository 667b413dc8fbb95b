"""Loads a table of the user from a file: text with any delimiter, JSON, Excel, Parquet or Arrow."""

from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import CountOrZero, Names, TestShare
from hetero_tf.data.arrow_files import ENDINGS as ARROW
from hetero_tf.data.arrow_files import ColumnSelection, read_arrow
from hetero_tf.data.column_types import ColumnRoles, ColumnScales, ColumnTypes
from hetero_tf.data.data_files import find_file
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.raw_table import to_names
from hetero_tf.data.table_dataset import table_dataset
from hetero_tf.data.table_files import read_table, table_ending
from hetero_tf.data.targets import LABEL


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: Names,
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
    """Loads a file with a row for each example.

    The file is text with a delimiter, JSON (a list of objects, or an object in each line), Excel (.xlsx, with the extra
    `excel`), Parquet, Arrow or Feather; text may be compressed (.gz, .bz2, .xz, .zst, .zip). A numeric column is one
    feature; a column of other texts is categorical, unless they differ in most rows, like names, which are rejected.
    The distinct values of the label column are the class names. For the task regression the label columns are numbers.
    For multi_label one column has lists such as `red;large`, or several columns have 0 and 1, one for each label.
    Without a header the columns are named column_0, column_1 and so on.

    Args:
        path: the file
        label: the column of labels, or a list of columns of targets
        test: file of the test rows, with the same columns; null: a share of the rows of each label
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
    roles = ColumnRoles(
        *(to_names(label), owner, ignore, categorical, columns or {}, categories == "one_hot", numbers, missing),
        *(scale or {}, targets, missing_values, group),
    )
    files = [find_file(data_dir, name, option) for option, name in (("path", path), ("test", test)) if name is not None]
    tables = [read_any(file, header, delimiter, skip, encoding) for file in files]
    return table_dataset(tables, roles, test_share, validation=validation)


def read_any(path: Path, header=True, delimiter=None, skip=0, encoding=None):
    """Return the `RawTable` of a file of any format, see `table_files.read_table`."""
    if table_ending(path) in ARROW:
        return read_arrow(str(path), [path], ColumnSelection(None, (), None))[0]
    return read_table(path, header, delimiter, skip, encoding)
