"""Loads a table of the user from a CSV file or a text file with another delimiter."""

import contextlib
import csv
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import Names, TestShare
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.column_types import ColumnRoles, ColumnScales, ColumnTypes
from hetero_tf.data.columns import is_number
from hetero_tf.data.data_files import find_file
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.raw_table import RawTable, TextColumn, to_names
from hetero_tf.data.table_dataset import table_dataset
from hetero_tf.data.targets import LABEL
from hetero_tf.data.text_lines import TextLines

# Memory of a table's texts, in multiples of the file size.
MEMORY = 20
LONGEST_LINE = 2**24
# Each column costs time, whatever its content.
MAX_COLUMNS = 100_000
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " "}
# Endings of files with tabs, and of all tables as text.
TAB_ENDINGS = (".tsv", ".tab")
TABLE_ENDINGS = (".csv", *TAB_ENDINGS)


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: Names,
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    columns: ColumnTypes | None = None,
    ignore: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    categories: Literal["one_hot", "numbers"] = "one_hot",
    numbers: Literal["plain", "point", "comma"] = "plain",
    missing: Literal["error", "mean", "median", "most_frequent", "category", "drop"] = "error",
    scale: ColumnScales | None = None,
    header: bool = True,
    delimiter: Literal["comma", "semicolon", "tab", "space"] = "comma",
    targets=LABEL,
) -> Dataset:
    """Loads a UTF-8 text file with a row for each example.

    A numeric column is one feature; a column of other texts is categorical, unless they differ in most rows, like
    names, which are rejected. The distinct values of the label column are the class names. For the task regression
    the label columns are numbers. For multi_label one column has lists such as `red;large`, or several columns have 0
    and 1, one for each label. Without a header the columns are named column_0, column_1 and so on.

    Args:
        path: the file
        label: the column of labels, or a list of columns of targets
        test: file of the test rows, with the same columns; null: a share of the rows of each label
        test_share: size of that share
        owner: column with the natural client of each row, for the partition natural; null: none
        columns: types of columns, such as {price: number, zip: category, joined: date, id: ignore}; date: the year,
            month, day and weekday as features; null: types follow from the values
        ignore: columns to leave out
        categorical: columns whose numbers are categories, such as postal codes
        categories: encoding of categories: one_hot (one 0/1 feature for each category) or numbers (one feature for the
            column, the index of the category)
        numbers: number format: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)
        missing: treatment of missing values (empty, NA, null): error, drop (the row), or a value of the training rows
            that replaces them: mean, median or most_frequent (also of categories), or category (a category `missing`;
            for numbers the mean and a 0/1 feature)
        scale: scaling of columns, such as {age: minmax}: standard (mean 0 and deviation 1, that of all others), minmax
            (0 to 1) or none; null: standard for all
        header: whether the first line contains the column names
        delimiter: separator of values
    """
    one_hot = categories == "one_hot"
    types, scales = columns or {}, scale or {}
    roles = ColumnRoles(to_names(label), owner, ignore, categorical, types, one_hot, numbers, missing, scales, targets)
    files = [find_file(data_dir, name, option) for option, name in (("path", path), ("test", test)) if name is not None]
    return table_dataset([read_table(file, header, DELIMITERS[delimiter]) for file in files], roles, test_share)


def read_table(path: Path, header: bool, delimiter: str) -> RawTable:
    """Reads the `RawTable` of a file; `header`: whether the first line contains the column names.

    Raises:
        InputError: The file is not a valid table.
        MemoryProblem: The table does not fit into memory.
    """
    numbers, rows = [], []
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_memory(path, MEMORY * size)
        lines = TextLines(file, LONGEST_LINE)
        declared = read_declared_delimiter(lines)
        if declared not in (None, delimiter):
            raise InputError(
                f"{path}:1: the first line sep={declared} declares another delimiter; {_delimiter_advice(declared)}"
            )
        for number, row in iterate_rows(lines, delimiter):
            if isinstance(row, InputError):
                raise InputError(f"{path}:{number}: {row}")
            rows.append(row)
            numbers.append(number)
    names = _read_names(path, rows, numbers, header, delimiter)
    columns = {name: TextColumn.from_values(row[i].strip() for row in rows) for i, name in enumerate(names)}
    return RawTable(str(path), columns, lambda row: f"{path}:{numbers[row]}")


def read_declared_delimiter(lines: TextLines) -> str | None:
    """Returns the delimiter that the first line declares, such as `sep=;` of some spreadsheets; None: it does not."""
    lines.begin_record()
    # An invalid line is reported when its row is read.
    with contextlib.suppress(InputError):
        if declared := re.fullmatch(r'"?sep=(.)"?[\r\n]*', next(lines, ""), re.IGNORECASE):
            return declared[1]
    lines.rewind(0)
    return None


def _delimiter_advice(sign):
    known = next((name for name, each in DELIMITERS.items() if each == sign), None)
    return f"set `delimiter: {known}`" if known else f"save it with one of {', '.join(DELIMITERS)} as delimiter"


def iterate_rows(lines: TextLines, delimiter: str) -> Iterator[tuple[int, list[str] | InputError]]:
    """Yields (number of the last line, values or error) of each row; blank lines are skipped.

    After a row that spans several lines and is not valid CSV, such as one with a stray quote, reading continues at its
    second line.
    """
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        lines.begin_record()
        try:
            row = next(reader, None)
        except csv.Error as error:
            lines.rewind()
            yield lines.number, InputError(f"cannot be parsed as CSV: {error}")
        except InputError as error:
            # The invalid line is not the first one if a quote before it is open; it is read again.
            is_open = lines.rewind()
            yield lines.number, InputError("cannot be parsed as CSV: a quote is not closed") if is_open else error
        else:
            if row is None:
                return
            if any(cell.strip() for cell in row):
                yield lines.number, row


def _read_names(path, rows, numbers, header, delimiter):
    """Returns the column names, removes the header line from `rows`, and checks the length of every row."""
    if len(rows) <= header:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    names = column_names(path, rows[0], header, delimiter)
    if header:
        numbers.pop(0)
        rows.pop(0)
    for row, number in zip(rows, numbers):
        if len(row) != len(names):
            raise InputError(
                f"{path}:{number}: must have {len(names)} values separated by {delimiter!r}, like the first line. "
                f"Received: {len(row)}, {shorten_repr(row, 80)}"
            )
    return names


def column_names(path: Path, first_row: Sequence[str], header: bool, delimiter: str) -> list[str]:
    """Returns the names of the columns of a table.

    Args:
        path: The file, for messages.
        first_row: Values of the first line.
        header: Whether they are the names; otherwise the names are column_0, column_1 and so on.
        delimiter: Separator of values.

    Raises:
        InputError: There are too many columns, a name occurs twice, or the first line has no names.
    """
    if header:
        # pandas uses the same names for columns without a name.
        names = [name.strip() or f"Unnamed: {index}" for index, name in enumerate(first_row)]
    else:
        names = [f"column_{index}" for index in range(len(first_row))]
    other = next((name for name, sign in DELIMITERS.items() if sign != " " and sign in names[0]), None)
    if len(names) == 1 and other:
        raise InputError(
            f"{path}:1: the header has no {delimiter!r}; is it `delimiter: {other}`? Received: {shorten_repr(names[0])}"
        )
    if len(names) > MAX_COLUMNS:
        raise InputError(f"{path}:1: a table may have at most {MAX_COLUMNS:,} columns. Received: {len(names):,}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}:1: column names must be unique. Received: {name!r} twice")
        seen.add(name)
    if header and all(is_number(name) for name in names):
        raise InputError(f"{path}:1: expected column names; if the file has no header, set `header: false`")
    return names
