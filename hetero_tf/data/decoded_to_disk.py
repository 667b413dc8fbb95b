"""Decodes large picture sets once into a .npy file; a run reads only the rows that it needs.

Each folder and picture size has one file in the user's cache folder, which can be deleted between runs. Its name
contains a hash of the files, options and versions. The file is renamed to that name only when it is complete; after a
kill or a full disk the next run decodes the pictures again.
"""

import contextlib
import hashlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hetero_tf.base.console import Console
from hetero_tf.base.errors import DiskProblem
from hetero_tf.base.files import TEMPORARY, Damaged, disk_errors, open_for_update, remove, replace_file, wait_for_lock
from hetero_tf.base.hardware import memory_limit
from hetero_tf.data import decoded
from hetero_tf.data.disk_array import DiskArray


def is_large(size: int) -> bool:
    """Return True if `size` bytes of pixels should stay on disk: above the cache limit or a quarter of memory."""
    return size > min(decoded.LARGEST, memory_limit() // 4)


def open_cached(
    name: str, options: list, source: Path, shape: tuple[int, ...], blocks: Callable[[], Iterator[np.ndarray]]
) -> DiskArray:
    """Returns the uint8 rows of `blocks()`, from the cache if possible; a lock serialises concurrent processes.

    Args:
        name: Name of the data set, for the file name.
        options: Options that affect the rows, such as a digest of the file list; JSON values.
        source: Folder with the data files.
        shape: Shape of all rows.
        blocks: `() -> iterator of consecutive rows`, uint8 arrays.

    Raises:
        DiskProblem: The cache folder is full or not writable.
        InputError: `blocks` rejects a file.
    """
    try:
        folder = decoded.FOLDER.expanduser()
    except RuntimeError as error:
        raise DiskProblem(f"{source}: needs the folder {decoded.FOLDER} for decoded pictures; set HOME") from error
    with disk_errors(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{'x'.join(map(str, shape[1:]))}"
    path = folder / f"{stem}-{hashlib.sha256(decoded.cache_key(options, source).encode()).hexdigest()[:16]}.npy"
    with _locked(folder / f"{stem}.lock"):
        rows = _load(path, shape)
        if rows is None:
            _write(path, stem, source, shape, blocks)
            rows = DiskArray.open(path)
    return rows


@contextlib.contextmanager
def _locked(path):
    """Waits for other processes that write the rows of the same folder and size."""
    descriptor = open_for_update(path, os.O_RDWR, "lock")
    try:
        wait_for_lock(descriptor, path, Console(sys.stderr).say)
        yield
    finally:
        os.close(descriptor)


def _load(path, shape):
    """Opens the rows that an earlier run wrote; None if they are missing or damaged."""
    with contextlib.suppress(Damaged):
        rows = DiskArray.open(path)
        if rows.shape == shape and rows.dtype == np.uint8:
            return rows
    return None


def _write(path, stem, source, shape, blocks):
    """Decodes all rows into a temporary file, renamed at the end; removes the files of earlier versions."""
    stale = sorted(path.parent.glob(f"{stem}-*.npy"))
    for file_to_remove in [*stale, *path.parent.glob(f"{TEMPORARY}{stem}-*")]:
        remove(file_to_remove)
    size, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if size > free:
        raise DiskProblem(
            f"{path.parent}: needs {size / 2**30:.1f} GiB for the decoded pictures of {source}, but {free / 2**30:.1f} "
            "GiB are free; free some space, replace the folder by a link to another disk, or use a smaller `size`"
        )
    reason = " again, because they or this program changed" if stale else ""
    Console(sys.stderr).say(
        f"decoding {shape[0]:,} pictures of {source}{reason}: {size / 2**30:.1f} GiB, cached for later runs in {path}"
    )
    with replace_file(path) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks():
            file.write(np.ascontiguousarray(block).data)
