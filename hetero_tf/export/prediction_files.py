"""Writes predictions as CSV, TSV or JSON lines."""

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import check_write_target, replace_file

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")


def check_output(path: Path, inputs: Sequence[str]) -> None:
    """Check the path of a file of predictions before anything is computed.

    Raises:
        InputError: The ending is unknown, the path is one of the inputs, or it is not a file.
    """
    if path.suffix.lower() not in (*DELIMITERS, *JSON_LINES):
        endings = ", ".join((*DELIMITERS, *JSON_LINES))
        raise InputError(f"--out must end in one of {endings}. Received: --out={path}")
    check_write_target(path)
    for name in inputs:
        if path.exists() and os.path.exists(name) and os.path.samefile(path, name):
            raise InputError(f"--out must not be an input, which would be lost. Received: --out={path}")


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a file, which replaces an earlier one when it is complete.

    Args:
        path: Path whose ending selects the format. JSON lines have lists as lists; in tables their entries are
            separated by semicolons.
        rows: At least one row; a table has the columns of the first one.

    Raises:
        DiskProblem: The system refused; an earlier file is unchanged. Errors of `rows` also leave it unchanged.
    """
    delimiter = DELIMITERS.get(path.suffix.lower())
    with replace_file(path) as file:
        # Names of files may have bytes outside UTF-8.
        text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", newline="")
        if delimiter is None:
            text.writelines(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        else:
            _write_table(text, rows, delimiter)
        text.detach()


def _write_table(file, rows, delimiter):
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), "", "ignore", delimiter=delimiter, lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: _join(value) for name, value in row.items()})


def _join(value):
    return "; ".join(map(str, value)) if isinstance(value, list) else value
