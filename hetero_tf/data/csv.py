"""A person's own table as text: rows of values with a comma, or another sign, between them."""

import csv
import io
import os
import re
from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import TestShare
from hetero_tf.base.errors import InputError, short
from hetero_tf.base.files import opened
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.columns import is_number
from hetero_tf.data.data_files import READS, find_file
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.table_dataset import ColumnRoles, RawTable, table_dataset

# What the texts of a table take in memory, beside what they take on the disk.
MEMORY = 20
LONGEST_LINE = 2**24
# Columns take a moment each, whatever is in them.
MOST_COLUMNS = 100_000
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

    A column of numbers is a feature; a column of other texts holds categories. The different values of the label are
    the class names. A value that is missing is refused with its line. Without a header the columns are named
    column_0, column_1 and so on.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the file
        label: the column of labels
        test: file of the test rows, with the same columns; null: a share of the rows of each label
        test_share: size of that share
        owner: column that says from which natural client a row is, for the partition natural; null: none
        ignore: columns that are left out
        categorical: columns whose numbers are categories, such as postal codes
        categories: one_hot (each category is a feature of its own, 0 or 1) or numbers (a column is one feature, the
            number of its category)
        numbers: how numbers are written: plain (1234.5), point (1,234.5 and 12 %) or comma (1.234,5 and 12 %)
        header: whether the first line names the columns
        delimiter: what stands between two values

    Raises:
        NotAvailable: A file is missing.
        InputError: A file is no such table, or a value is missing or of another kind than those above it.
        MemoryProblem: The table does not fit into memory.
    """
    roles = ColumnRoles(label, owner, ignore, categorical, categories == "one_hot", numbers)
    train = read_sheet(find_file(data_dir, path, "path"), header, DELIMITERS[delimiter])
    tests = None if test is None else read_sheet(find_file(data_dir, test, "test"), header, DELIMITERS[delimiter])
    return table_dataset(train, tests, roles, test_share)


def read_sheet(path: Path, header: bool, delimiter: str) -> RawTable:
    """Reads the `RawTable` of a file; `header`: whether its first line names the columns.

    Raises:
        InputError: It is no such table.
        MemoryProblem: It does not fit into memory.
    """
    lines, rows = [], []
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_memory(path, MEMORY * size)
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(_lines(path, text, delimiter), delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                # A blank line is no row.
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(reader.line_num)
        except UnicodeDecodeError as error:
            raise InputError(f"{path}:{reader.line_num + 1}: is not UTF-8 text; save it as UTF-8 ({READS})") from error
        except csv.Error as error:
            raise InputError(f"{path}:{reader.line_num}: is no row of a table: {error}") from error
    names = _names(path, rows, lines, header, delimiter)
    columns: dict = {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}
    return RawTable(str(path), columns, lambda row: f"{path}:{lines[row]}", size)


def _after_separator(path, text, delimiter):
    """The first line, or an empty one for a line `sep=;`, which some spreadsheets write to name the delimiter."""
    first = text.readline(LONGEST_LINE)
    stated = re.fullmatch(r'"?sep=(.)"?[\r\n]*', first, re.IGNORECASE)
    if stated is None:
        return first
    if stated[1] != delimiter:
        known = next((name for name, sign in DELIMITERS.items() if sign == stated[1]), None)
        advice = f"set `delimiter: {known}`" if known else f"save it with one of {', '.join(DELIMITERS)} between values"
        raise InputError(f"{path}:1: the first line sep={stated[1]} names another delimiter; {advice}")
    return "\n"


def _lines(path, text, delimiter):
    """Yields the lines of a table, none of them longer than `LONGEST_LINE`."""
    line, number = _after_separator(path, text, delimiter), 1
    while line:
        if len(line) >= LONGEST_LINE:
            raise InputError(f"{path}:{number}: a line may have up to {LONGEST_LINE:,} characters; is it a table?")
        yield line
        line, number = text.readline(LONGEST_LINE), number + 1


def _names(path, rows, lines, header, delimiter):
    """Names of the columns; takes the line of the names from the rows, and refuses rows of another length."""
    if len(rows) <= header:
        raise InputError(f"{path}: expected rows of a table. Received: none")
    if header:
        lines.pop(0)
        # As pandas names the columns that have no name.
        names = [name.strip() or f"Unnamed: {place}" for place, name in enumerate(rows.pop(0))]
    else:
        names = [f"column_{place}" for place in range(len(rows[0]))]
    other = next((name for name, sign in DELIMITERS.items() if sign != " " and sign in names[0]), None)
    if len(names) == 1 and other:
        raise InputError(
            f"{path}:1: has no {delimiter!r} between names; is it `delimiter: {other}`? Received: {short(names[0])}"
        )
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{path}:1: a table may have up to {MOST_COLUMNS:,} columns. Received: {len(names):,}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{path}:1: every column must have a name of its own. Received: {name!r} again")
        seen.add(name)
    if header and all(is_number(name) for name in names):
        raise InputError(f"{path}:1: expected the names of the columns; if there is no such line, say `header: false`")
    for row, line in zip(rows, lines):
        if len(row) != len(names):
            raise InputError(
                f"{path}:{line}: must have {len(names)} values with {delimiter!r} between them, as the first line has. "
                f"Received: {len(row)}, {short(row, 80)}"
            )
    return names
