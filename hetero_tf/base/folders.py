"""Replacing a whole folder, and what a killed program left behind.

No system call puts a folder in the place of another one that is not empty. So the earlier one steps aside as
`.old-NAME`, the new one takes its name, and only then the earlier one goes. A kill in between leaves `.old-NAME`
whole, and `restore` puts it back.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path

from hetero_tf.base import files
from hetero_tf.base.errors import BadInput

OLD = ".old-"


def replace(draft: Path, folder: Path, is_whole: Callable[[Path], bool]) -> None:
    """Puts a finished draft in the place of a folder.

    Args:
        draft: The new folder, with its contents on the disk.
        folder: Where it shall stand: nothing, an empty folder, or one that `is_whole`.
        is_whole: Whether a folder is one that this program finished.

    Raises:
        DiskProblem: The system refused; the earlier folder stands under its own name.
    """
    old = folder.with_name(OLD + folder.name)
    restore(folder, is_whole)
    with files.disk(folder, "replace"):
        if is_whole(folder):
            os.rename(folder, old)
        try:
            os.rename(draft, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
    files.sync_folder(folder.parent)
    restore(folder, is_whole)


def restore(folder: Path, is_whole: Callable[[Path], bool]) -> None:
    """Ends a replacement that a kill interrupted: the earlier folder goes if a whole one stands, else it comes back.

    Raises:
        DiskProblem: The system refused.
    """
    old = folder.with_name(OLD + folder.name)
    if not is_whole(old):
        return
    with files.disk(folder, "restore"):
        if not is_whole(folder):
            # Over an empty folder too; one with other things in it stays, and so does the earlier one.
            if not os.path.lexists(folder) or (folder.is_dir() and not os.listdir(folder)):
                os.rename(old, folder)
                files.sync_folder(folder.parent)
            return
        # Renamed first: a folder under a name that is restored is never half deleted.
        rest = files.draft_of(folder)
        files.remove(rest)
        os.rename(old, rest)
    files.remove(rest)


def check_old(folder: Path, is_whole: Callable[[Path], bool]) -> None:
    """Refuses to replace a folder while something else has the name under which it would step aside."""
    old = folder.with_name(OLD + folder.name)
    if os.path.lexists(old) and not is_whole(old):
        raise BadInput(f"{old}: stands in the way, as the folder to replace takes this name for a moment; move it away")


def check_name(folder: Path) -> None:
    """Refuses a path that the system cannot hold, or whose last name leaves no room to step aside.

    Raises:
        BadInput: It is too long.
        DiskProblem: The system refused to look.
    """
    for path in (folder, folder.with_name(OLD + folder.name)):
        with files.disk(folder, "look at"), contextlib.suppress(FileNotFoundError):
            try:
                os.lstat(path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    text = str(folder)
                    raise BadInput(
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
