"""Reading and writing files: whole and on the disk, or one sentence about what is in the way.

What the program writes is a regular file, or a folder, of its own: whatever else has that name (a link, a pipe, a
device) is refused, so that nothing is written through it.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from hetero_tf.base import exits
from hetero_tf.base.errors import DiskProblem, InputError

TEMPORARY = ".tmp-"
HASHED_AT_ONCE = 2**20
# A draft is named after so many characters of what it becomes: with them its name never exceeds 255 bytes.
NAMED = 60

ADVICE = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some of your quota and run the same command again",
    errno.EFBIG: "raise the file size limit (`ulimit -f`) and run the same command again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a folder that you may write, or change its permissions",
    errno.EPERM: "choose a folder that you may write, or change its permissions",
    errno.ENOENT: "its folder does not exist: make it or choose another one",
    errno.EIO: "check the disk, then run the same command again",
    errno.ENAMETOOLONG: "choose a shorter path",
}
# The file itself is missing or broken. Any other error may pass by itself, so it must not cost a saved round.
BROKEN = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.ENAMETOOLONG}
# Answers to a lock of NFS without a lock daemon, Lustre without the option `flock`, and some FUSE file systems.
WITHOUT_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}

# Opening a pipe must not wait for its other end, and a link must not lead elsewhere.
GUARDED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Damaged(InputError):
    """A file is missing, is no regular file, or does not hold what it must hold."""


def explain(path: Path | str, doing: str, error: OSError) -> str:
    """Says in one sentence which file it was, what was tried, what the system answered, and what helps."""
    advice = ADVICE.get(error.errno or 0, "check the path and the disk")
    return f"{path}: could not {doing}: {error.strerror or error}; {advice}"


@contextlib.contextmanager
def disk(path: Path | str, doing: str) -> Iterator[None]:
    """Turns an OSError of the block into a `DiskProblem`; `doing` is a verb such as "write"."""
    try:
        yield
    except OSError as error:
        raise DiskProblem(explain(path, doing, error)) from error


def check_place(path: Path | str, folder: bool = False) -> None:
    """Refuses what stands where the program writes a file, or a folder; it is fine if nothing is there.

    Raises:
        InputError: A link, pipe, device, or a folder instead of a file, has that name.
    """
    with disk(path, "look at"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _require_kind(path, os.lstat(path).st_mode, folder)


def _require_kind(path, mode, folder=False):
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(mode):
        wanted = "a folder" if folder else "a file"
        raise InputError(f"{path}: expected {wanted} or nothing. Received: {_kind(mode)}; move it away")


def _kind(mode):
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "a pipe, device or socket")


def open_in_place(path: Path | str, access: int, doing: str) -> int:
    """Opens a regular file that is changed in place, made if missing, and returns its descriptor.

    Args:
        path: Path of the file.
        access: `os.O_RDWR`, or `os.O_WRONLY | os.O_APPEND`.
        doing: A verb for the sentence, such as "append to".

    Raises:
        InputError: A link, pipe, device or folder has that name, or the file has another name too, perhaps elsewhere.
        DiskProblem: The system refused.
    """
    check_place(path)
    with disk(path, doing):
        descriptor = os.open(path, access | os.O_CREAT | GUARDED, 0o666)
    try:
        # Looked at again: something else may have come between the look and the opening.
        status = os.fstat(descriptor)
        _require_kind(path, status.st_mode)
        if status.st_nlink > 1:
            raise InputError(f"{path}: has another name too (a hard link), which would change with it; put a copy here")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def creating(path: Path | str) -> Iterator[BinaryIO]:
    """Opens a file that must not exist yet for writing bytes; when the block ends, they are on the disk."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def lock(descriptor: int, path: Path | str, wait: bool) -> None:
    """Locks an open file until its descriptor is closed.

    Args:
        descriptor: Of the file.
        path: Its path, for the error.
        wait: Whether to wait for the process that has locked it.

    Raises:
        BlockingIOError: Another process has locked it; not where `wait`.
        DiskProblem: The system refused, for example because the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise DiskProblem(explain(path, "lock", error)) from error
        raise DiskProblem(
            f"{path}: this file system has no locks ({error.strerror}), so two programs could write into one folder; "
            "choose a folder on a local disk, or mount this file system with locks"
        ) from error


def wait_for_lock(descriptor: int, path: Path | str, say: Callable[[str], None]) -> None:
    """Locks an open file, and waits for the process that has locked it; the system frees the lock when that ends.

    Args:
        descriptor: Of the file.
        path: Its path, for sentences.
        say: Called once if another process has the lock.

    Raises:
        DiskProblem: See `lock`.
    """
    try:
        lock(descriptor, path, wait=False)
    except BlockingIOError:
        say(f"{path}: another process writes this file; waiting for it")
        lock(descriptor, path, wait=True)


def write_new(path: Path | str, data: bytes | memoryview) -> None:
    """Writes a file that must not exist yet, and waits until it is on the disk.

    Raises:
        DiskProblem: A file or link of that name exists, or the system refused.
    """
    with disk(path, "write"), creating(path) as file:
        file.write(data)


def write_private(path: Path | str, data: bytes) -> None:
    """Writes a new file with mode 0600 from its creation, whatever the umask, and waits until it is on the disk.

    Raises:
        DiskProblem: A file or link of that name exists, or the system refused.
    """
    with disk(path, "write"):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | GUARDED, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[BinaryIO]:
    """Opens a file for writing bytes that takes the place of `path` when the block ends.

    After any crash `path` holds its old bytes or all of the new ones.

    Raises:
        InputError: A link, pipe, device or folder has that name.
        DiskProblem: The system refused; the old file is untouched.
    """
    path = Path(path)
    check_place(path)
    draft = draft_of(path)
    remove(draft)
    try:
        with exits.before_exit(lambda: discard(draft)), disk(path, "write"), creating(draft) as file:
            yield file
        with disk(path, "replace"):
            os.rename(draft, path)
    except BaseException:
        discard(draft)
        raise
    sync_folder(path.parent)


def draft_of(path: Path) -> Path:
    """The name under which the next content of a file or folder is written, beside it."""
    # The process id keeps two programs that write the same file from writing into each other's draft.
    return path.with_name(f"{TEMPORARY}{path.name[:NAMED]}.{os.getpid()}")


def write_atomic(path: Path | str, data: bytes | memoryview) -> None:
    """Replaces the content of a file in one step; see `replacing`."""
    with replacing(path) as file:
        file.write(data)


def sync_folder(path: Path | str) -> None:
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


def remove(path: Path | str) -> None:
    """Removes a file, a link (not its target) or a whole folder; it is fine if nothing is there."""
    with disk(path, "remove"), contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def discard(path: Path | str) -> None:
    """Removes what a failed write left, as `remove`; a second problem must not hide the first one."""
    with contextlib.suppress(DiskProblem):
        remove(path)


@contextlib.contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turns an OSError of the block into `Damaged` when the file itself is at fault, else into `DiskProblem`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path}: is a symbolic link, which is not followed") from error
        kind = Damaged if error.errno in BROKEN else DiskProblem
        raise kind(f"{path}: could not read: {error.strerror or error}") from error


def sha256_of(file: BinaryIO) -> str:
    """Returns the hex digest of what is left of an open file, which is read in blocks."""
    digest = hashlib.sha256()
    while block := file.read(HASHED_AT_ONCE):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def opened(path: Path | str, folder: int | None = None, follow: bool = True) -> Iterator[BinaryIO]:
    """Opens a regular file for reading bytes.

    Args:
        path: Path of the file.
        folder: Descriptor of the folder that holds it, so that swapping the folder for a link changes nothing.
        follow: Whether a symbolic link is followed; if not, it is refused.

    Raises:
        Damaged: It is missing, a folder, a pipe, a device or a link, or cannot be read by its own fault.
        DiskProblem: The system refused for another reason.
    """
    flags = os.O_RDONLY | (GUARDED & ~os.O_NOFOLLOW if follow else GUARDED)
    with reading(path):
        descriptor = os.open(path if folder is None else Path(path).name, flags, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged(f"{path}: expected a file. Received: {_kind(status.st_mode)}")
            # What a kernel shows as a file (/proc/kmsg) has no size and may never end: it counts as empty.
            source = descriptor if status.st_size else os.devnull
            with open(source, "rb", closefd=source == os.devnull) as file:
                yield file
        finally:
            os.close(descriptor)


def read_bytes(path: Path | str, limit: int, folder: int | None = None, follow: bool = False) -> bytes:
    """Returns the bytes of a regular file; a file above `limit` bytes is refused before memory is taken.

    Raises:
        Damaged, DiskProblem: As for `opened`; also `Damaged` for a file that is too large.
    """
    with opened(path, folder, follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise Damaged(f"{path}: has {size} bytes, at most {limit} are allowed")
        return file.read(size)


def check_utf8(path: Path | str) -> None:
    """Raise `InputError` for a path that is not valid UTF-8, as archives of other systems leave it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{str(path)!r}: has a name that is not UTF-8; rename it (convmv does so for folders)"
        ) from None


def decode(content: bytes, path: Path | str) -> str:
    """Returns bytes as text; drops a UTF-8 byte order mark, and raises `Damaged` for other encodings."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Damaged(f"{path}: is UTF-16 text; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Damaged(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
