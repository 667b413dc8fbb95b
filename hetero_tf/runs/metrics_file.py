"""The metrics file of a run: one strict JSON object per line, each with its "round"."""

import contextlib
import json
import os
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.runs import plain_json

# Bytes of a file, and of a row whose round `last_round` finds.
LIMIT, LONGEST_ROW = 2**30, 2**18


def append(path: Path, row: dict) -> bytes:
    """Append one row, sync it to disk, and return its line.

    Args:
        path: The file; it is created if missing.
        row: Dict with an integer "round". NumPy numbers are allowed; NaN and infinity are written as null.

    Raises:
        InputError: "round" is missing, a value is not valid JSON, or the path is not a regular file.
        DiskProblem: The write failed; the file is unchanged.
    """
    if not _has_round(row):
        raise InputError(f"a row of metrics needs an integer 'round'. Received: row={row!r}")
    line = plain_json.dump(plain_json.finite(row), "a row of metrics") + b"\n"
    path = Path(path)
    descriptor = files.open_for_update(path, os.O_WRONLY | os.O_APPEND, "append to")
    with files.disk_errors(path, "append to"):
        try:
            size = os.fstat(descriptor).st_size
            _append_whole(descriptor, line, size)
        finally:
            os.close(descriptor)
    if not size:
        files.sync_folder(path.parent)
    return line


def rows(path: Path) -> list[dict]:
    """Return all rows in file order, without an incomplete last line; a missing file has no rows.

    Raises:
        Damaged: A line is not a row; the message names file and line.
    """
    lines = _content(path).split(b"\n")[:-1]
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(_row(line, f"{path}:{number}"))
        except Damaged as damage:
            # An unreadable last line counts as an interrupted write.
            if number < len(lines):
                raise Damaged(f"{damage}; remove or repair that line") from damage
    return parsed


def last_round(path: Path) -> int:
    """Return the round of the last complete row without reading the others; 0 for a file without one."""
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError, TypeError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_ROW))
        return int(json.loads(file.read().split(b"\n")[-2])["round"])
    return 0


def _append_whole(descriptor, line, size):
    try:
        rest = memoryview(line)
        # os.write may write only a part, for example when the disk is nearly full.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        # A partial row would merge with the next one.
        os.ftruncate(descriptor, size)
        raise


def _row(line, source):
    row = plain_json.parse(line, source)
    if not _has_round(row):
        raise Damaged(f"{source}: has no integer 'round'")
    return row


def _has_round(row):
    return isinstance(row, dict) and isinstance(row.get("round"), int) and not isinstance(row["round"], bool)


def _content(path):
    return files.read_bytes(path, LIMIT) if os.path.lexists(path) else b""
