"""Caches decoded arrays between runs: decoding 70,000 images takes seconds, reading their pixels a tenth of one.

Each entry is a folder of .npy files in the user's cache folder, which can be deleted between runs. Its name contains a
hash of the source files, options and versions, so that a change decodes the data again. An entry gets its name only
when it is complete.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from hetero_tf.base import processes
from hetero_tf.base.console import Console
from hetero_tf.base.errors import UserError
from hetero_tf.base.files import (
    TEMPORARY,
    create_file,
    discard,
    disk_errors,
    draft_path,
    read_errors,
    remove,
    remove_leftovers,
)
from hetero_tf.base.hardware import memory_limit
from hetero_tf.base.version import __version__
from hetero_tf.data.disk_array import DiskArray

FOLDER = Path("~/.cache/hetero_tf/decoded")
# Smaller sets load in less than a second; larger ones stay on disk.
SMALLEST, LARGEST = 10_000, 2**31
# Hexadecimal digits of the hash in the name of an entry.
KEY = 16


def is_large(size: int) -> bool:
    """Return True if `size` bytes of pixels should stay on disk: above `LARGEST` or a quarter of memory."""
    return size > min(LARGEST, memory_limit() // 4)


def stamp_files(paths: Iterable[str | Path]) -> str:
    """Return a digest of the paths, sizes and times of files."""
    digest = hashlib.sha256()
    for path in paths:
        with read_errors(path):
            status = os.stat(path)
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def folder_name(loader: str, folder: Path) -> str:
    """Return the beginning of the names of the entries of a folder of the user, which differs between folders."""
    return f"{loader}-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:KEY]}"


def load_cached(
    name: str, options: list, source: Path, names: Sequence[str], read: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays of `read()`, from the cache if possible; a cache that cannot be used is ignored.

    Args:
        name: Name of the data set, for the name of the entry.
        options: Options that affect the arrays; JSON values.
        source: Folder with the data files; a change of a name, size or time invalidates the entry.
        names: Names of the arrays.
        read: `() -> {name: array}`.
    """
    try:
        folder = _entry(name, options, source)
    # The user has no home folder, or the files are not local.
    except (RuntimeError, OSError):
        return read()
    with contextlib.suppress(UserError, OSError, MemoryError):
        return {each: DiskArray.open(folder / f"{each}.npy")[:] for each in names}
    arrays = read()

    def save(draft):
        for each, array in arrays.items():
            np.save(draft / f"{each}.npy", np.ascontiguousarray(array))

    if max(map(len, arrays.values())) >= SMALLEST and sum(array.nbytes for array in arrays.values()) <= LARGEST:
        with contextlib.suppress(OSError, UserError):
            _write(folder, save)
    return arrays


def open_cached(
    name: str, options: list, source: Path, shape: tuple[int, ...], blocks: Callable[[], Iterator[np.ndarray]]
) -> DiskArray:
    """Return the uint8 rows of `blocks()`, which stay on disk.

    Args:
        name, options, source: As for `load_cached`.
        shape: Shape of all rows.
        blocks: `() -> iterator of consecutive rows`, uint8 arrays.
    """
    folder = _entry(name, options, source)

    def save(draft):
        with create_file(draft / "x.npy") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            for block in blocks():
                file.write(np.ascontiguousarray(block).data)

    if not folder.exists():
        Console(sys.stderr).say(
            f"decoding {shape[0]:,} pictures of {source}: {math.prod(shape) / 2**30:.1f} GiB, cached for later runs in "
            f"{folder}"
        )
        with disk_errors(folder, "write"):
            _write(folder, save)
    return DiskArray.open(folder / "x.npy")


def _entry(name, options, source):
    """Return the folder of an entry: NAME-KEY, with a hash of the options, the package versions and the files."""
    files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(source))
    versions = [
        __version__,
        *(metadata.version(package) for package in ("tensorflow", "tensorflow-datasets", "pillow")),
    ]
    key = hashlib.sha256(json.dumps([options, versions, files]).encode()).hexdigest()[:KEY]
    return FOLDER.expanduser() / f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', name)}-{key}"


def _write(folder, save):
    """Remove earlier versions of an entry and drafts of killed processes; fill a draft, and rename it to the entry."""
    stem, draft = folder.name[: -KEY - 1], draft_path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.parent.glob(f"{stem}-{'[0-9a-f]' * KEY}"):
        remove(path)
    remove_leftovers(folder.parent, re.compile(rf"{re.escape(f'{TEMPORARY}{stem}-')}.*\.(?P<process>\d+)"))
    with processes.before_exit(lambda: discard(draft)):
        try:
            draft.mkdir()
            save(draft)
            os.rename(draft, folder)
        except BaseException as error:
            discard(draft)
            # Of two processes that write an entry at the same time, the first one wins.
            if not isinstance(error, OSError) or not folder.exists():
                raise
