"""Loads a table of the user from a CSV file or a text file with another delimiter."""

import csv
import io
import os
import re
from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import TestShare
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.columns import is_number
from hetero_tf.data.data_files import find_file
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.table_dataset import ColumnRoles, RawTable, TextColumn, table_dataset

# Memory of a table's texts, in multiples of the file size.
MEMORY = 20
LONGEST_LINE = 2**24
# Each column costs time, whatever its content.
MAX_COLUMNS = 100_000
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "space": " "}


def load(
    data_dir: Path | None,
    *,
    path: str,
    label: str,
    test: str | None = None,
    test_share: TestShare = 0.2,
    owner: str | None = None,
    ignore: tuple[str, ...] = (),
    categorical: tuple[str, ...] = (),
    categories: Literal["one_hot", "numbers"] = "one_hot",
    numbers: Literal["plain", "point", "comma"] = "plain",
    header: bool = True,
    delimiter: Literal["comma", "semicolon", "tab", "space"] = "comma",
) -> Dataset:
    """Loads a UTF-8 text file with a row for each example.

    A numeric column is one feature; a column of other texts is categorical. The distinct values of the label column
    are the class names. Missing values are rejected with their line number. Without a header the columns are named
    column_0, column_1 and so on.

    Args:
        path: the file
        label: the column of labels
        test: file of the test rows, with the same columns; null: a share of the rows of each label
        test_share: size of that share
        owner: column with the natural client of each row, for the partition natural; null: none
        ignore: columns to leave out
        categorical: columns whose numbers are categories, such as postal codes
        categories: encoding of categories: one_hot (one 0/1 feature for each category) or numbers (one feature for the
            column, the index of the category)
        numbers: number format: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)
        header: whether the first line contains the column names
        delimiter: separator of values
    """
    roles = ColumnRoles(label, owner, ignore, categorical, categories == "one_hot", numbers)
    files = [find_file(data_dir, name, option) for option, name in (("path", path), ("test", test)) if name is not None]
    return table_dataset([read_table(file, header, DELIMITERS[delimiter]) for file in files], roles, test_share)


def read_table(path: Path, header: bool, delimiter: str) -> RawTable:
    """Reads the `RawTable` of a file; `header`: whether the first line contains the column names.

    Raises:
        InputError: The file is not a valid table.
        MemoryProblem: The table does not fit into memory.
    """
    lines, rows = [], []
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_memory(path, MEMORY * size)
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(
            _iterate_lines(path, text, delimiter), delimiter=delimiter, skipinitialspace=True, strict=True
        )
        try:
            for row in reader:
                # Skip blank lines.
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(reader.line_num)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}:{reader.line_num + 1}: is not UTF-8 text. Save it as UTF-8, or choose another `data:` "
                "(see recipes/README.md)"
            ) from error
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: cannot be parsed as CSV: {error}") from error
    names = _read_names(path, rows, lines, header, delimiter)
    columns = {name: TextColumn.from_values(row[i].strip() for row in rows) for i, name in enumerate(names)}
    return RawTable(str(path), columns, lambda row: f"{path}:{lines[row]}", size)


def _skip_separator_line(path, text, delimiter):
    """Returns the first line; blank for a line such as `sep=;`, with which some spreadsheets declare the delimiter."""
    first = text.readline(LONGEST_LINE)
    declared = re.fullmatch(r'"?sep=(.)"?[\r\n]*', first, re.IGNORECASE)
    if declared is None:
        return first
    if declared[1] != delimiter:
        known = next((name for name, sign in DELIMITERS.items() if sign == declared[1]), None)
        advice = f"set `delimiter: {known}`" if known else f"save it with one of {', '.join(DELIMITERS)} as delimiter"
        raise InputError(f"{path}:1: the first line sep={declared[1]} declares another delimiter; {advice}")
    return "\n"


def _iterate_lines(path, text, delimiter):
    """Yields the lines of a table; `InputError` for a line longer than `LONGEST_LINE`."""
    line, number = _skip_separator_line(path, text, delimiter), 1
    while line:
        if len(line) >= LONGEST_LINE:
            raise InputError(f"{path}:{number}: a line may have at most {LONGEST_LINE:,} characters; is it a table?")
        yield line
        line, number = text.readline(LONGEST_LINE), number + 1


def _read_names(path, rows, lines, header, delimiter):
    """Returns the column names, removes the header line from `rows`, and checks the length of every row."""
    if len(rows) <= header:
        raise InputError(f"{path}: expected at least one row of data. Received: none")
    if header:
        lines.pop(0)
        # pandas uses the same names for columns without a name.
        names = [name.strip() or f"Unnamed: {index}" for index, name in enumerate(rows.pop(0))]
    else:
        names = [f"column_{index}" for index in range(len(rows[0]))]
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
    for row, line in zip(rows, lines):
        if len(row) != len(names):
            raise InputError(
                f"{path}:{line}: must have {len(names)} values separated by {delimiter!r}, like the first line. "
                f"Received: {len(row)}, {shorten_repr(row, 80)}"
            )
    return names
