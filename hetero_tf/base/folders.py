"""Folders: check the length of a path, and remove leftovers of killed programs."""

import contextlib
import errno
import os
import re
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError


def check_path_length(folder: Path) -> None:
    """Refuse a path that is too long for the file system.

    Raises:
        InputError: It is too long.
        DiskProblem: The system denied access.
    """
    with files.disk_errors(folder, "look at"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.lstat(folder)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                text = str(folder)
                raise InputError(
                    f"{text[:60] + '...' * (len(text) > 60)}: the path is too long for this system; choose a "
                    f"shorter one. Received: {len(text)} characters, {len(folder.name)} of them in the last name"
                ) from error
            raise


def remove_leftovers(folder: Path | str, pattern: re.Pattern) -> None:
    """Remove files that killed programs left in a folder.

    Args:
        folder: The folder; it may be missing.
        pattern: Full-match pattern of the names to remove. With a group `process` (the id of the process that wrote
            the file), files of running processes are kept.

    Raises:
        DiskProblem: The system denied access.
    """
    with files.disk_errors(folder, "list"):
        names = os.listdir(folder) if os.path.lexists(folder) else []
    for match in filter(None, map(pattern.fullmatch, names)):
        pid = match.groupdict().get("process")
        # An id equal to ours belongs to a former process: this one has not written anything yet.
        if pid is None or int(pid) == os.getpid() or not files.is_process_alive(int(pid)):
            files.remove(Path(folder) / match[0])
