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
from hetero_tf.base.files import TEMPORARY, create_file, discard, disk_errors, draft_path, remove, remove_leftovers
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


def load_cached(
    name: str,
    options: list,
    source: Path,
    names: Sequence[str],
    read: Callable[[], dict[str, np.ndarray]],
    files: Iterable[str | Path] | None = None,
) -> dict[str, np.ndarray]:
    """Return the arrays of `read()`, from the cache if possible; a cache that cannot be used is ignored.

    Args:
        name: Name of the data set, for the name of the entry.
        options: Options that affect the arrays; JSON values.
        source: Folder of the data; each one has entries of its own.
        names: Names of the arrays.
        read: `() -> {name: array}`.
        files: The data files, of which a change of a name, size or time invalidates the entry; None: those of `source`.
    """
    try:
        folder = _entry(name, options, source, files)
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
    name: str,
    options: list,
    source: Path,
    shape: tuple[int, ...],
    blocks: Callable[[], Iterator[np.ndarray]],
    files: Iterable[str | Path] | None = None,
) -> DiskArray:
    """Return the uint8 rows of the arrays that `blocks()` yields, which stay on disk; otherwise as `load_cached`.

    Raises:
        DiskProblem: The cache folder is full or not writable.
        InputError: `blocks` rejects a file.
    """
    folder = _entry(name, options, source, files)

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


def _entry(name, options, source, files=None):
    """Return the folder of an entry: NAME, a hash of the folder, and one of options, package versions and files."""
    packages = ("tensorflow", "tensorflow-datasets", "pillow")
    digest = hashlib.sha256(json.dumps([options, __version__, *map(metadata.version, packages)]).encode())
    for path in sorted(map(str, source.iterdir() if files is None else files)):
        status = os.stat(path)
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    of_folder = hashlib.sha256(str(source.absolute()).encode()).hexdigest()[:KEY]
    stem = f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', name)}-{of_folder}"
    return FOLDER.expanduser() / f"{stem}-{digest.hexdigest()[:KEY]}"


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
