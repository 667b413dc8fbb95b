"""File operations that happen whole and reach the disk, or raise one sentence."""

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from hetero_tf.base.errors import BadInput, DiskProblem

TEMPORARY = ".tmp-"

ADVICE = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some of your quota and run the same command again",
    errno.EFBIG: "raise the file size limit (`ulimit -f`) and run the same command again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that you may write, or change its permissions",
    errno.EPERM: "choose a folder that you may write, or change its permissions",
    errno.ENOENT: "the folder has vanished: put it back or choose another one",
    errno.EIO: "check the disk, then run the same command again",
}
# These mean that the stored thing itself is gone or broken; any other error may pass, so it must not cost a round.
BROKEN = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO}


class Damaged(BadInput):
    """A stored file is not what this program wrote: torn, flipped, replaced, or made by a stranger."""


def explain(path, doing, error):
    """One sentence: which file, what was tried, what the system said, what to do."""
    advice = ADVICE.get(error.errno, "check the path and the disk")
    return f"{path}: could not {doing}: {error.strerror or error}; {advice}"


@contextlib.contextmanager
def disk(path, doing):
    """Turns an OSError of the block into a `DiskProblem`; `doing` is a verb such as "write"."""
    try:
        yield
    except OSError as error:
        raise DiskProblem(explain(path, doing, error)) from error


def write_new(path, data):
    """Writes a file that must not exist yet, and waits until it is on the disk.

    Args:
        path: Path of the new file.
        data: Bytes-like.

    Raises:
        DiskProblem: A file or link of that name exists, or the system refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with disk(path, "write"):
        descriptor = os.open(path, flags, 0o666)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_all(descriptor, data):
    """Writes all bytes: one call to the system may take only a part (2 GB limit, nearly full disk)."""
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path):
    """Waits until the names in a folder are on the disk."""
    with disk(path, "write"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems have no fsync for folders; there a rename is durable by itself.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


def write_atomic(path, data):
    """Puts a whole new content in place of a file: after any crash it holds the old bytes or the new ones.

    Args:
        path: Path of the file; a link of that name is replaced, not followed.
        data: Bytes-like.

    Raises:
        DiskProblem: The system refused; the old file is untouched.
    """
    path = Path(path)
    temporary = path.with_name(TEMPORARY + path.name)
    remove(temporary)
    try:
        write_new(temporary, data)
        with disk(path, "replace"):
            os.rename(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    sync_folder(path.parent)


def remove(path):
    """Removes a file, a link (not what it points to) or a whole folder; nothing there is fine."""
    with disk(path, "remove"), contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def discard(path):
    """`remove` while another error is on its way: that one must be reported, and a later sweep tries again."""
    with contextlib.suppress(DiskProblem):
        remove(path)


@contextlib.contextmanager
def reading(path):
    """Turns an OSError of the block into `Damaged` when the file itself is at fault, else into `DiskProblem`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path}: is a symbolic link, which is not followed") from error
        kind = Damaged if error.errno in BROKEN else DiskProblem
        raise kind(f"{path}: could not read: {error.strerror or error}") from error


def read(path, limit, folder=None):
    """The bytes of a regular file.

    Args:
        path: Path of the file.
        limit: Most bytes that are read; a larger file is refused before any memory is taken.
        folder: Descriptor of the folder that holds it, so that swapping the folder for a link changes nothing.

    Raises:
        Damaged: Missing, a link, a pipe or device, too large, or unreadable by its own fault.
        DiskProblem: The system refused for another reason.
    """
    path = Path(path)
    # O_NONBLOCK: opening a pipe must not wait for a writer that never comes.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with reading(path):
        descriptor = os.open(path if folder is None else path.name, flags, dir_fd=folder)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise Damaged(f"{path}: is not a regular file")
            if about.st_size > limit:
                raise Damaged(f"{path}: has {about.st_size} bytes, at most {limit} expected")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(about.st_size)
        finally:
            os.close(descriptor)
