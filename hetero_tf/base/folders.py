"""Folders: names that the system can hold, and what killed programs left behind."""

import contextlib
import errno
import os
import re
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import InputError


def check_name(folder: Path) -> None:
    """Refuses a path that the system cannot hold.

    Raises:
        InputError: It is too long.
        DiskProblem: The system refused to look.
    """
    with files.disk(folder, "look at"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            os.lstat(folder)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                text = str(folder)
                raise InputError(
                    f"{text[:60] + '...' * (len(text) > 60)}: is too long a path for this system; choose a "
                    f"shorter one. Received: {len(text)} characters, {len(folder.name)} of them in the last name"
                ) from error
            raise


def sweep(folder: Path | str, left: re.Pattern) -> None:
    """Removes what killed programs left in a folder.

    Args:
        folder: The folder; it may be missing.
        left: The whole name of what is removed. Where it has a group `process`, the number of the program that wrote
            it, what belongs to a program that still runs stays.

    Raises:
        DiskProblem: The system refused.
    """
    with files.disk(folder, "list"):
        names = os.listdir(folder) if os.path.lexists(folder) else []
    for match in filter(None, map(left.fullmatch, names)):
        process = match.groupdict().get("process")
        # A number that is ours was another program's, as this one has written nothing yet.
        if process is None or int(process) == os.getpid() or not alive(int(process)):
            files.remove(Path(folder) / match[0])


def alive(process: int) -> bool:
    """Whether a process of that id runs on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
