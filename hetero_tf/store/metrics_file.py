"""The metrics of a run: one strict JSON object per line, each with its "round"."""

import os
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.store import plain_json

LIMIT = 2**30


def append(path: Path, row: dict) -> bytes:
    """Adds one row, waits until it is on the disk, and returns its line.

    Args:
        path: The file, made if missing.
        row: Dict with an integer "round"; NumPy numbers are fine, NaN and infinity are written as null.

    Raises:
        InputError: No "round", or a value that JSON cannot hold, or something else than a file has that name.
        DiskProblem: The system refused; the file is as it was.
    """
    if not _has_round(row):
        raise InputError(f"a row of metrics needs an integer 'round'. Received: row={row!r}")
    line = plain_json.dump(plain_json.finite(row), "a row of metrics") + b"\n"
    path = Path(path)
    descriptor = files.open_in_place(path, os.O_WRONLY | os.O_APPEND, "append to")
    with files.disk(path, "append to"):
        try:
            size = os.fstat(descriptor).st_size
            _append_whole(descriptor, line, size)
        finally:
            os.close(descriptor)
    if not size:
        files.sync_folder(path.parent)
    return line


def rows(path: Path) -> list[dict]:
    """Returns all rows in the order of the file; an unfinished last line is left out, a missing file has no rows.

    Raises:
        Damaged: A line is not a row; the sentence names file and line.
    """
    lines = _content(path).split(b"\n")[:-1]
    parsed = []
    for number, line in enumerate(lines, 1):
        try:
            parsed.append(_row(line, f"{path}:{number}"))
        except Damaged as damage:
            # An unreadable last line is taken for torn.
            if number < len(lines):
                raise Damaged(f"{damage}; remove or repair that line") from damage
    return parsed


def _append_whole(descriptor, line, size):
    try:
        rest = memoryview(line)
        # One call to the system may write only a part, for example when the disk is nearly full.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        # Half a row would swallow the next one.
        os.ftruncate(descriptor, size)
        raise


def _row(line, where):
    row = plain_json.parse(line, where)
    if not _has_round(row):
        raise Damaged(f"{where}: has no integer 'round'")
    return row


def _has_round(row):
    return isinstance(row, dict) and isinstance(row.get("round"), int) and not isinstance(row["round"], bool)


def _content(path):
    return files.read_bytes(path, LIMIT) if os.path.lexists(path) else b""
