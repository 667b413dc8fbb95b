"""Decoded arrays kept between runs: 70,000 compressed images take seconds to read, their pixels a tenth of one.

One file per data set, in the cache folder of the user, who may delete it at any time. It is used only if it was made
from the very same files by the same versions and is whole; whatever is wrong with it, the data are read anew.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from importlib import metadata
from pathlib import Path

import numpy as np

from hetero_tf import __version__
from hetero_tf.base.errors import DiskProblem, Refusal
from hetero_tf.base.files import TEMPORARY, replacing
from hetero_tf.base.npz import read_arrays

FOLDER = Path("~/.cache/hetero_tf/decoded")
# Smaller sets are read in less than a second, and larger ones would take much of a disk.
SMALLEST, LARGEST = 10_000, 2**31
# What a killed process left behind is swept after so many seconds.
STALE = 3600


def kept(name, about, source, names, read):
    """The arrays that `read()` gives, from the cache where it holds them.

    Args:
        name: Of the data set, for the name of the file.
        about: Options that the arrays depend on; plain JSON.
        source: Folder of the files that are read; a change of a name, size or time makes the kept arrays stale.
        names: Of the arrays.
        read: `() -> {name: array}`.
    """
    try:
        path = FOLDER.expanduser() / (re.sub(r"[^\w.-]", "-", name) + ".npz")
        key = _key(about, source)
    # There is no home folder, or the files lie on a server.
    except (RuntimeError, OSError):
        return read()
    found = _recall(path, key, names)
    if found is None:
        found = read()
        if max(map(len, found.values())) >= SMALLEST and sum(array.nbytes for array in found.values()) <= LARGEST:
            _keep(path, key, found)
    return found


def _key(about, source):
    """Text that is equal where the arrays are."""
    files = sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(source))
    versions = [__version__, *(metadata.version(package) for package in ("tensorflow", "tensorflow-datasets"))]
    return json.dumps([about, versions, files])


def _seal(key, arrays):
    """SHA-256 of a key and of arrays with their names, as uint8 [32]."""
    digest = hashlib.sha256(key.encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return np.frombuffer(digest.digest(), np.uint8)


def _recall(path, key, names):
    """The kept arrays, or None if there are none for this key."""
    with contextlib.suppress(Refusal, OSError, MemoryError):
        found = read_arrays(path, [*names, "seal"])
        if np.array_equal(found.pop("seal"), _seal(key, found)):
            return found
    return None


def _keep(path, key, arrays):
    """Writes arrays in one step; a disk that is full or read-only costs the next start its seconds, nothing else."""
    with contextlib.suppress(OSError, DiskProblem):
        path.parent.mkdir(parents=True, exist_ok=True)
        for draft in path.parent.glob(f"{TEMPORARY}*"):
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()
        with replacing(path) as file:
            np.savez(file, seal=_seal(key, arrays), **arrays)
