"""Caches decoded arrays between runs: decoding 70,000 images takes seconds, reading their pixels a tenth of one.

Each data set has one file in the user's cache folder, which can be deleted at any time. The file is used only if it is
intact and was written from the same files by the same versions; otherwise the data are decoded again.
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
from hetero_tf.base.files import TEMPORARY, replace_file
from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.version import __version__

FOLDER = Path("~/.cache/hetero_tf/decoded")
# Smaller sets load in less than a second, and larger ones would fill the disk.
SMALLEST, LARGEST = 10_000, 2**31
# Age in seconds at which temporary files of killed processes are removed.
STALE = 3600


def load_cached(
    name: str, options: list, source: Path, names: Sequence[str], read: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the arrays of `read()`, from the cache if possible.

    Args:
        name: Name of the data set, for the file name.
        options: Options that affect the arrays; JSON values.
        source: Folder with the data files; a change of a name, size or time invalidates the cache.
        names: Names of the arrays.
        read: `() -> {name: array}`.
    """
    try:
        path = FOLDER.expanduser() / (re.sub(r"[^\w.-]", "-", name) + ".npz")
        key = cache_key(options, source)
    # The user has no home folder, or the files are not local.
    except (RuntimeError, OSError):
        return read()
    arrays = _load(path, key, names)
    if arrays is None:
        arrays = read()
        if max(map(len, arrays.values())) >= SMALLEST and sum(array.nbytes for array in arrays.values()) <= LARGEST:
            _save(path, key, arrays)
    return arrays


def cache_key(options: list, source: Path) -> str:
    """Cache key of the options, the package versions, and the names, sizes and times of the files."""
    files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(source))
    versions = [__version__, *(metadata.version(package) for package in ("tensorflow", "tensorflow-datasets"))]
    return json.dumps([options, versions, files])


def _digest(key, arrays):
    """SHA-256 of a key and of named arrays, as uint8 [32]."""
    digest = hashlib.sha256(key.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _load(path, key, names):
    """Returns the cached arrays of a key, or None."""
    with contextlib.suppress(UserError, OSError, MemoryError):
        arrays = read_arrays(path, [*names, "seal"])
        if np.array_equal(arrays.pop("seal"), _digest(key, arrays)):
            return arrays
    return None


def _save(path, key, arrays):
    """Writes the arrays atomically; if the disk is full or read-only, the next run decodes them again."""
    with contextlib.suppress(OSError, UserError):
        path.parent.mkdir(parents=True, exist_ok=True)
        for draft in path.parent.glob(f"{TEMPORARY}*"):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()
        with replace_file(path) as file:
            np.savez(file, seal=_digest(key, arrays), **arrays)
