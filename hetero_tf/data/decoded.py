"""Caches decoded arrays between runs: 70,000 compressed images take seconds to read, their pixels a tenth of one.

One file per data set, in the cache folder of the user, who may delete it at any time. It is used only if it was made
from the very same files by the same versions and is whole; whatever is wrong with it, the data are read anew.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import UserError
from hetero_tf.base.files import TEMPORARY, replacing
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.version import __version__

FOLDER = Path("~/.cache/hetero_tf/decoded")
# Smaller sets are read in less than a second, and larger ones would take much of a disk.
SMALLEST, LARGEST = 10_000, 2**31
# What a killed process left behind is swept after so many seconds.
STALE = 3600


def cached(
    name: str, options: list, source: Path, names: Sequence[str], read: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the arrays that `read()` gives, from the cache if it has them.

    Args:
        name: Of the data set, for the name of the file.
        options: Options that the arrays depend on; plain JSON.
        source: Folder of the files that are read; a change of a name, size or time makes the cached arrays stale.
        names: Of the arrays.
        read: `() -> {name: array}`.
    """
    try:
        path = FOLDER.expanduser() / (re.sub(r"[^\w.-]", "-", name) + ".npz")
        key = key_of(options, source)
    # There is no home folder, or the files are not local.
    except (RuntimeError, OSError):
        return read()
    arrays = _load(path, key, names)
    if arrays is None:
        arrays = read()
        if max(map(len, arrays.values())) >= SMALLEST and sum(array.nbytes for array in arrays.values()) <= LARGEST:
            _save(path, key, arrays)
    return arrays


def key_of(options: list, source: Path) -> str:
    """Text that is equal where the arrays are."""
    files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(source))
    versions = [__version__, *(metadata.version(package) for package in ("tensorflow", "tensorflow-datasets"))]
    return json.dumps([options, versions, files])


def _seal(key, arrays):
    """SHA-256 of a key and of arrays with their names, as uint8 [32]."""
    digest = hashlib.sha256(key.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _load(path, key, names):
    """Returns the cached arrays, or None if there are none for this key."""
    with contextlib.suppress(UserError, OSError, MemoryError):
        arrays = read_arrays(path, [*names, "seal"])
        if np.array_equal(arrays.pop("seal"), _seal(key, arrays)):
            return arrays
    return None


def _save(path, key, arrays):
    """Writes arrays in one step; if the disk is full or read-only, the next start decodes them again."""
    with contextlib.suppress(OSError, UserError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for draft in path.parent.glob(f"{TEMPORARY}*"):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()
        with replacing(path) as file:
            np.savez(file, seal=_seal(key, arrays), **arrays)
