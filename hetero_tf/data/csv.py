"""A person's own table as text: rows of values with a comma, or another sign, between them."""

import csv
import io
import os
from pathlib import Path
from typing import Literal

from hetero_tf.base.constraints import TestShare
from hetero_tf.base.errors import BadInput, short
from hetero_tf.base.files import opened
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.columns import is_number
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.files import READS, find_file
from hetero_tf.data.tables import Roles, Sheet, table_dataset

# What the texts of a table take in memory, beside what they take on the disk.
MEMORY = 20
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
        header: whether the first line names the columns
        delimiter: what stands between two values

    Raises:
        NotAvailable: A file is missing.
        BadInput: A file is no such table, or a value is missing or of another kind than those above it.
        MemoryProblem: The table does not fit into memory.
    """
    roles = Roles(label, owner, ignore, categorical, categories == "one_hot")
    train = read_sheet(find_file(data_dir, path, "path"), header, DELIMITERS[delimiter])
    tests = None if test is None else read_sheet(find_file(data_dir, test, "test"), header, DELIMITERS[delimiter])
    return table_dataset(train, tests, roles, test_share)


def read_sheet(path: Path, header: bool, delimiter: str) -> Sheet:
    """Reads the `Sheet` of a file; `header`: whether its first line names the columns.

    Raises:
        BadInput: It is no such table.
        MemoryProblem: It does not fit into memory.
    """
    lines, rows = [], []
    with opened(path) as file:
        check_memory(path, MEMORY * os.fstat(file.fileno()).st_size)
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            for row in reader:
                # A blank line is no row.
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(reader.line_num)
        except UnicodeDecodeError as error:
            raise BadInput(f"{path}:{reader.line_num + 1}: is not UTF-8 text; save it as UTF-8 ({READS})") from error
        except csv.Error as error:
            raise BadInput(f"{path}:{reader.line_num}: is no row of a table: {error}") from error
    names = _names(path, rows, lines, header, delimiter)
    columns: dict = {name: [row[place].strip() for row in rows] for place, name in enumerate(names)}
    return Sheet(str(path), columns, lambda row: f"{path}:{lines[row]}")


def _names(path, rows, lines, header, delimiter):
    """Names of the columns; takes the line of the names from the rows, and refuses rows of another length."""
    if len(rows) <= header:
        raise BadInput(f"{path}: expected rows of a table. Received: none")
    if header:
        names, _ = [name.strip() for name in rows.pop(0)], lines.pop(0)
    else:
        names = [f"column_{place}" for place in range(len(rows[0]))]
    twice = [name for place, name in enumerate(names) if name in names[:place] or not name]
    if twice:
        raise BadInput(f"{path}:1: every column must have a name of its own. Received: {twice[0]!r} again or no name")
    if header and all(is_number(name) for name in names):
        raise BadInput(f"{path}:1: expected the names of the columns; if there is no such line, say `header: false`")
    for row, line in zip(rows, lines):
        if len(row) != len(names):
            raise BadInput(
                f"{path}:{line}: must have {len(names)} values with {delimiter!r} between them, as the first line has. "
                f"Received: {len(row)}, {short(row, 80)}"
            )
    return names
