"""Durable file access: files are written completely and synced, and errors become one sentence.

The program writes only regular files and folders. A link, pipe or device with that name is refused, so that nothing
is written through it.
"""

import contextlib
import csv
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_origin, get_type_hints

from hetero_tf.base import processes
from hetero_tf.base.errors import DiskProblem, InputError

T = TypeVar("T")
TEMPORARY = ".tmp-"
HASH_BLOCK = 2**20
# Characters of the final name in the name of a draft, so that it never exceeds 255 bytes.
DRAFT_NAME_LENGTH = 60

ADVICE = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some of your quota and run the same command again",
    errno.EFBIG: "raise the file size limit (`ulimit -f`) and run the same command again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose a writable folder, or change its permissions",
    errno.EPERM: "choose a writable folder, or change its permissions",
    errno.ENOENT: "its folder does not exist: create it or choose another one",
    errno.EIO: "check the disk, then run the same command again",
    errno.ENAMETOOLONG: "choose a shorter path",
    # NFS without a lock daemon, Lustre without the option `flock`, and some FUSE file systems have no locks.
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
        "choose a folder on a local disk, or mount this file system with locks",
    ),
}
# The file is missing or broken. Other errors may be temporary, so they must not discard a saved round.
FILE_ERRORS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EIO, errno.ENAMETOOLONG}

# Do not block on a pipe, and do not follow a link.
SAFE_OPEN_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Damaged(InputError):
    """A file is missing, is not a regular file, or has invalid content."""


def describe_os_error(path: Path | str, action: str, error: OSError) -> str:
    """Return one sentence with the file, the action, the system error and advice."""
    advice = ADVICE.get(error.errno or 0, "check the path and the disk")
    return f"{path}: could not {action}: {error.strerror or error}; {advice}"


@contextlib.contextmanager
def disk_errors(path: Path | str, action: str) -> Iterator[None]:
    """Turn an OSError of the block into a `DiskProblem`; `action` is a verb such as "write"."""
    try:
        yield
    except OSError as error:
        raise DiskProblem(describe_os_error(path, action, error)) from error


def check_write_target(path: Path | str, folder: bool = False) -> None:
    """Refuse a write target that exists as another kind of file; a missing target is accepted.

    Raises:
        InputError: The path is a link, pipe or device, or a folder instead of a file.
    """
    with disk_errors(path, "look at"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _require_kind(path, os.lstat(path).st_mode, folder)


def _require_kind(path, mode, folder=False):
    if not (stat.S_ISDIR if folder else stat.S_ISREG)(mode):
        expected = "a folder" if folder else "a file"
        raise InputError(f"{path}: expected {expected} or nothing. Received: {_kind(mode)}; move it away")


def _kind(mode):
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a symbolic link"}
    return kinds.get(stat.S_IFMT(mode), "a pipe, device or socket")


def make_folder(path: Path) -> None:
    """Create a folder durably if it is missing; its parent must exist."""
    check_write_target(path, folder=True)
    if not path.is_dir():
        with disk_errors(path, "create the folder"):
            os.mkdir(path)
        sync_folder(path.parent)


def create_folder(path: Path, kind: str, is_known: Callable[[list[str]], bool]) -> None:
    """Create a folder if it is missing.

    Args:
        kind: What the folder is for, such as "run".
        is_known: Function of the names in the folder that returns True if they are of this kind.

    Raises:
        InputError: The path is not a folder, or the folder has other contents.
    """
    with disk_errors(path, "look at"):
        # In this order: another process may create the folder in between.
        exists, is_folder = os.path.lexists(path), path.is_dir()
        names = sorted(os.listdir(path)) if is_folder else []
    if exists and not is_folder:
        raise InputError(f"{path}: is not a folder; choose another {kind} folder by --run_dir")
    if names and not is_known(names):
        raise InputError(
            f"{path}: holds other things ({', '.join(names[:3])}) and no {kind}; "
            f"choose an empty or new {kind} folder by --run_dir"
        )
    with disk_errors(path, "create"):
        path.mkdir(parents=True, exist_ok=True)


def open_for_update(path: Path | str, access: int, action: str) -> int:
    """Open a regular file for changes in place, creating it if missing, and return its descriptor.

    Args:
        access: `os.O_RDWR`, or `os.O_WRONLY | os.O_APPEND`.
        action: A verb for error messages, such as "append to".

    Raises:
        InputError: The path is a link, pipe, device or folder.
        DiskProblem: The system refused.
    """
    check_write_target(path)
    with disk_errors(path, action):
        descriptor = os.open(path, access | os.O_CREAT | SAFE_OPEN_FLAGS, 0o666)
    try:
        # Check again: the file may have been replaced between the check and the open.
        _require_kind(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def create_file(path: Path | str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Create a new file for writing bytes; they are synced to disk at the end of the block."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags | SAFE_OPEN_FLAGS, mode)) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def hold_lock(path: Path | str, notify: Callable[[str], None]) -> Iterator[int]:
    """Lock a file during the block, creating it if missing, and yield its descriptor.

    Args:
        notify: Called with a message if another process holds the lock; unless it raises an error, wait for the lock.

    Raises:
        InputError: See `open_for_update`.
        DiskProblem: The system refused, for example because the file system has no locks.
    """
    descriptor = open_for_update(path, os.O_RDWR, "lock")
    try:
        with disk_errors(path, "lock"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                notify(f"{path}: another process is writing this file; waiting for it")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def write_new(path: Path | str, data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a new file and sync it to disk; the umask removes permissions of `mode`.

    Raises:
        DiskProblem: A file or link of that name exists, or the system refused.
    """
    with disk_errors(path, "write"), create_file(path, mode) as file:
        file.write(data)


@contextlib.contextmanager
def replace_file(path: Path | str, is_one_of_many: bool = False) -> Iterator[BinaryIO]:
    """Open a draft for writing bytes; it replaces `path` at the end of the block.

    After a crash, `path` contains either the old or the new bytes, never a mixture. The file keeps its permissions.
    Drafts of this file that killed programs left are removed.

    Args:
        is_one_of_many: Do not list the folder for such drafts, which takes long if it gets many files.

    Raises:
        InputError: The path is a link, pipe, device or folder.
        DiskProblem: The system refused; the old file is unchanged.
    """
    path = Path(path)
    check_write_target(path)
    draft = draft_path(path)
    if not is_one_of_many:
        with contextlib.suppress(DiskProblem):
            remove_leftovers(path.parent, re.compile(rf"{re.escape(draft.stem)}\.(?P<process>[0-9]+)"))
    remove(draft)
    try:
        with processes.before_exit(lambda: discard(draft)), disk_errors(path, "write"), create_file(draft) as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(os.lstat(path).st_mode))
            yield file
        with disk_errors(path, "replace"):
            os.rename(draft, path)
    except BaseException:
        discard(draft)
        raise
    sync_folder(path.parent)


def is_process_alive(pid: int) -> bool:
    """Return True if a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def draft_path(path: Path) -> Path:
    """Return the path of the draft of a file or folder, in the same folder."""
    # The process id gives two programs that write the same file separate drafts.
    return path.with_name(f"{TEMPORARY}{path.name[:DRAFT_NAME_LENGTH]}.{os.getpid()}")


def write_atomic(path: Path | str, data: bytes | memoryview, is_one_of_many: bool = False) -> None:
    """Replace the content of a file atomically; see `replace_file`."""
    with replace_file(path, is_one_of_many) as file:
        file.write(data)


def sync_folder(path: Path | str) -> None:
    """Sync the directory entries of a folder to disk."""
    with disk_errors(path, "write"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems have no fsync for folders, and their renames are durable.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


def remove(path: Path | str) -> None:
    """Remove a file, a link (not its target) or a folder with its content; a missing file is accepted."""
    with disk_errors(path, "remove"), contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def discard(path: Path | str) -> None:
    """Remove the rest of a failed write; a second error must not hide the first one."""
    with contextlib.suppress(DiskProblem):
        remove(path)


@contextlib.contextmanager
def read_errors(path: Path | str) -> Iterator[None]:
    """Turn an OSError of the block into `Damaged` if the file is the cause, else into `DiskProblem`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Damaged(f"{path}: is a symbolic link, which is not followed") from error
        error_class = Damaged if error.errno in FILE_ERRORS else DiskProblem
        raise error_class(f"{path}: could not read: {error.strerror or error}") from error


def sha256_of(file: BinaryIO) -> str:
    """Return the hex SHA-256 digest of the rest of an open file, read in blocks."""
    digest = hashlib.sha256()
    while block := file.read(HASH_BLOCK):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def open_file(path: Path | str, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes.

    Args:
        follow: Follow a symbolic link; otherwise refuse it.

    Raises:
        Damaged: The file is missing, unreadable, a folder, a pipe, a device or a link.
        DiskProblem: The system refused for another reason.
    """
    flags = os.O_RDONLY | (SAFE_OPEN_FLAGS & ~os.O_NOFOLLOW if follow else SAFE_OPEN_FLAGS)
    with read_errors(path):
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Damaged(f"{path}: expected a file. Received: {_kind(status.st_mode)}")
            # Kernel files such as /proc/kmsg have no size and may never end: treat them as empty.
            source = descriptor if status.st_size else os.devnull
            with open(source, "rb", closefd=source == os.devnull) as file:
                yield file
        finally:
            os.close(descriptor)


def read_bytes(path: Path | str, limit: int, follow: bool = False) -> bytes:
    """Return the bytes of a regular file; refuse more than `limit` bytes before allocating memory.

    Raises:
        Damaged, DiskProblem: See `open_file`; also `Damaged` for a file that is too large.
    """
    with open_file(path, follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise Damaged(f"{path}: has {size} bytes, at most {limit} are allowed")
        return file.read(size)


def check_utf8(path: Path | str) -> None:
    """Raise `InputError` for a path that is not valid UTF-8, as archives of other systems create it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!r}: the name is not UTF-8; rename it (convmv renames whole folders)") from None


def decode(content: bytes, path: Path | str) -> str:
    """Decode UTF-8 text, dropping a byte order mark; raise `Damaged` for other encodings."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Damaged(f"{path}: is UTF-16 text; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Damaged(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file of this package, each by its header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_table(path: Path, kind: type[T]) -> dict[str, T]:
    """Return the rows of a CSV file of this package as objects of a dataclass, by the column "name".

    Cells are texts, "yes" of a bool or the words of a tuple; an empty cell has the default of its field.
    """
    types, table = get_type_hints(kind), {}
    for row in read_rows(path):
        cells: dict[str, Any] = {key: cell for key, cell in row.items() if cell and key in types}
        for key, cell in cells.items():
            if types[key] is bool:
                cells[key] = cell == "yes"
            elif get_origin(types[key]) is tuple:
                cells[key] = tuple(cell.split())
        table[row["name"]] = kind(**cells)
    return table


def remove_leftovers(folder: Path | str, pattern: re.Pattern) -> None:
    """Remove files that killed programs left in a folder.

    Args:
        folder: The folder; it may be missing.
        pattern: Full-match pattern of the names to remove. With a group `process` (the id of the process that wrote
            the file), files of running processes are kept.

    Raises:
        DiskProblem: The system denied access.
    """
    with disk_errors(folder, "list"):
        names = os.listdir(folder) if os.path.lexists(folder) else []
    for match in filter(None, map(pattern.fullmatch, names)):
        pid = match.groupdict().get("process")
        # An id equal to ours belongs to a former process: this one has not written anything yet.
        if pid is None or int(pid) == os.getpid() or not is_process_alive(int(pid)):
            remove(Path(folder) / match[0])
