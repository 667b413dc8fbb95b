"""Where exports lie: FOLDER/<level>/<version>/, as model servers want it.

A version is written beside its place and takes its name in one step; from then on nothing touches it. So a server that
watches the folder never sees half a model, nor a gap between two.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hetero_tf.base import exits, files, folders
from hetero_tf.base.errors import InputError

# The file of an export that is written last.
EXPORTED = "export.json"
MOST = 10**9
_VERSION = re.compile("[1-9][0-9]*")
_DRAFT = re.compile(r"\.tmp-version\.(?P<process>[0-9]+)")


def check_place(folder: Path, version: int | None) -> None:
    """Refuses a folder in which a version cannot be written, before anything is computed.

    Args:
        folder: That of a level.
        version: Its number; None: the next one.

    Raises:
        InputError: The path is too long, a parent is not a folder, or the version exists.
        DiskProblem: The system refused to look.
    """
    folders.check_name(folder)
    if os.path.lexists(folder.parent / EXPORTED):
        raise InputError(
            f"{folder.parent}: holds an export of hetero_tf 0.1, which has one level and no versions; move it away, or "
            "choose another folder"
        )
    for path in (folder.parent, folder):
        if os.path.lexists(path) and not path.is_dir():
            raise InputError(f"{path}: stands in the way and is not a folder; choose another folder")
    if version is not None and os.path.lexists(folder / str(version)):
        raise _taken(folder / str(version))


def _taken(path):
    return InputError(
        f"{path}: is there already, and versions never change; "
        "choose another --export_version, or leave it out for the next one"
    )


def numbers(folder: Path) -> tuple[int, ...]:
    """Returns the numbers of the versions in the folder of a level, none where it is missing."""
    with files.disk(folder, "list"):
        names = os.listdir(folder) if folder.is_dir() else []
    return tuple(int(name) for name in names if _VERSION.fullmatch(name))


def next_version(folder: Path) -> int:
    """Returns the number behind the largest one in the folder of a level, 1 where there is none."""
    return max(numbers(folder), default=0) + 1


@contextlib.contextmanager
def drafted(folder: Path) -> Iterator[Path]:
    """Makes the folder in which a version is written; it goes if its writer raises. What killed exports left goes too.

    Args:
        folder: That of a level; it and its parents are made.

    Raises:
        DiskProblem: The system refused.
    """
    with files.disk(folder, "make the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    folders.sweep(folder, _DRAFT)
    draft = files.draft_of(folder / "version")

    def discard():
        files.discard(draft)
        with contextlib.suppress(OSError):
            # Only where this export made it, since one with anything in it stays.
            folder.rmdir()
            folder.parent.rmdir()

    with exits.before_exit(discard):
        try:
            with files.disk(draft, "make the folder"):
                draft.mkdir()
            yield draft
        except BaseException:
            discard()
            raise


def publish(draft: Path, version: int | None) -> Path:
    """Gives a finished draft its name, and waits until the disk has it.

    Args:
        draft: What `drafted` made, with its contents on the disk.
        version: Its number; None: the next one, also where another program has just taken that.

    Returns:
        Path of the version.

    Raises:
        InputError: The version is there by now.
        DiskProblem: The system refused.
    """
    while True:
        target = draft.with_name(str(version or next_version(draft.parent)))
        with files.disk(target, "name"):
            try:
                os.rename(draft, target)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                if version is not None:
                    raise _taken(target) from error
    files.sync_folder(target.parent)
    return target
