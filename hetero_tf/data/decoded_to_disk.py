"""Decodes large sets of pictures once into a .npy file, of which a run reads only the rows that it needs.

One file for each folder and size of pictures, in the cache folder of the user, who may delete it between runs. Its name
says of which files, options and versions it was made, and it takes that name only when it is whole: a kill, or a full
disk, leaves the next start to decode anew.
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
from hetero_tf.base.files import TEMPORARY, Damaged, disk, open_in_place, remove, replacing, wait_for_lock
from hetero_tf.base.hardware import memory
from hetero_tf.data import decoded
from hetero_tf.data.disk_array import DiskArray


def is_large(size: int) -> bool:
    """Whether so many bytes of pixels are better left on disk: more than the cache in memory takes, or than fits."""
    return size > min(decoded.LARGEST, memory() // 4)


def cached_on_disk(
    name: str, options: list, source: Path, shape: tuple[int, ...], blocks: Callable[[], Iterator[np.ndarray]]
) -> DiskArray:
    """Returns the uint8 rows that `blocks()` gives, from the cache if it has them; two programs decode one by one.

    Args:
        name: Of the data set, for the name of the file.
        options: Options that the rows depend on, such as a stamp of all files; plain JSON.
        source: Folder of the files that are read.
        shape: Of all rows together.
        blocks: `() -> some rows at a time`, in order.

    Raises:
        DiskProblem: The cache folder has no room, or cannot be written.
        InputError: What `blocks` refuses.
    """
    try:
        folder = decoded.FOLDER.expanduser()
    except RuntimeError as error:
        raise DiskProblem(f"{source}: needs the folder {decoded.FOLDER} for decoded pictures; set HOME") from error
    with disk(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{'x'.join(map(str, shape[1:]))}"
    path = folder / f"{stem}-{hashlib.sha256(decoded.key_of(options, source).encode()).hexdigest()[:16]}.npy"
    with _locked(folder / f"{stem}.lock"):
        kept = _opened(path, shape)
        if kept is None:
            _write(path, stem, source, shape, blocks)
            kept = DiskArray.open(path)
    return kept


@contextlib.contextmanager
def _locked(path):
    """Waits until no other program writes the rows of the same folder and size."""
    descriptor = open_in_place(path, os.O_RDWR, "lock")
    try:
        wait_for_lock(descriptor, path, Console(sys.stderr).say)
        yield
    finally:
        os.close(descriptor)


def _opened(path, shape):
    """The rows that an earlier start wrote; None where there are none, or where they are damaged."""
    with contextlib.suppress(Damaged):
        kept = DiskArray.open(path)
        if kept.shape == shape and kept.dtype == np.uint8:
            return kept
    return None


def _write(path, stem, source, shape, blocks):
    """Decodes all rows into a file that takes its name at the end; what earlier versions left is removed."""
    stale = sorted(path.parent.glob(f"{stem}-*.npy"))
    for left in [*stale, *path.parent.glob(f"{TEMPORARY}{stem}-*")]:
        remove(left)
    size, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if size > free:
        raise DiskProblem(
            f"{path.parent}: needs {size / 2**30:.1f} GiB for the decoded pictures of {source}, but {free / 2**30:.1f} "
            "GiB are free; free some space, put a link to another disk there, or use a smaller `size`"
        )
    why = " anew, since they or this program changed" if stale else ""
    Console(sys.stderr).say(
        f"decoding {shape[0]:,} pictures of {source}{why}: {size / 2**30:.1f} GiB, kept for later runs in {path}"
    )
    with replacing(path) as file:
        about = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, about)
        for block in blocks():
            file.write(np.ascontiguousarray(block).data)
