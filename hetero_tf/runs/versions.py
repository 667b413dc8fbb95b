"""Version folders of exports: FOLDER/<level>/<version>/, the layout that model servers read.

A version is written to a temporary folder and renamed once. It never changes afterwards. So a server that watches the
folder never sees a partial model, or a gap between two versions.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hetero_tf.base import files, processes
from hetero_tf.base.errors import InputError

# The file of an export that is written last.
EXPORTED = "export.json"
_VERSION = re.compile("[1-9][0-9]*")
_DRAFT = re.compile(r"\.tmp-version\.(?P<process>[0-9]+)")


def check_version_folder(folder: Path, version: int | None) -> None:
    """Check that a version can be written, before anything is computed.

    Args:
        version: Version number; None for the next one.

    Raises:
        InputError: A parent is not a folder, or the version exists.
        DiskProblem: The folder cannot be read.
    """
    for path in (folder.parent, folder):
        if os.path.lexists(path) and not path.is_dir():
            raise InputError(f"{path}: exists and is not a folder; choose another folder")
    if version is not None and os.path.lexists(folder / str(version)):
        raise _exists_error(folder / str(version))


def _exists_error(path):
    return InputError(
        f"{path}: already exists, and versions never change; "
        "choose another --export_version, or leave it out for the next one"
    )


def numbers(folder: Path) -> tuple[int, ...]:
    """Return the version numbers in the folder of a level; empty if it is missing."""
    with files.disk_errors(folder, "list"):
        names = os.listdir(folder) if folder.is_dir() else []
    return tuple(int(name) for name in names if _VERSION.fullmatch(name))


@contextlib.contextmanager
def create_draft(folder: Path) -> Iterator[Path]:
    """Create a temporary folder for a version and remove it if the block raises.

    Also remove drafts of killed exports.

    Raises:
        DiskProblem: A folder cannot be created.
    """
    with files.disk_errors(folder, "make the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    files.remove_leftovers(folder, _DRAFT)
    draft = files.draft_path(folder / "version")

    def discard():
        files.discard(draft)
        with contextlib.suppress(OSError):
            # rmdir keeps folders that are not empty.
            folder.rmdir()
            folder.parent.rmdir()

    with processes.before_exit(discard):
        try:
            with files.disk_errors(draft, "make the folder"):
                draft.mkdir()
            yield draft
        except BaseException:
            discard()
            raise


def publish(draft: Path, version: int | None) -> Path:
    """Rename a finished draft to its version and sync the folder.

    Args:
        draft: Folder from `create_draft`, with its contents on disk.
        version: Version number; None for the next free one, even if another process has just taken one.

    Returns:
        Path of the version.

    Raises:
        InputError: The version exists by now.
        DiskProblem: The rename failed.
    """
    while True:
        target = draft.with_name(str(version or max(numbers(draft.parent), default=0) + 1))
        with files.disk_errors(target, "name"):
            try:
                os.rename(draft, target)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                if version is not None:
                    raise _exists_error(target) from error
    files.sync_folder(target.parent)
    return target
