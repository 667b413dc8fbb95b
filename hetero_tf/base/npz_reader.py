"""Reads untrusted .npz files: without pickle, and with a check of each header before allocating memory."""

import contextlib
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory


def read_arrays(path: Path | str, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read named arrays of a .npz file.

    Args:
        path: File to read.
        names: Array names; other arrays of the file are not read.

    Returns:
        Dictionary name -> array.

    Raises:
        InputError: The file is not a regular .npz file, lacks an array, or an array is damaged or contains objects.
        MemoryProblem: The arrays exceed the memory of this machine.
        DiskProblem: The operating system failed to read.
    """
    with _archive(path) as (archive, members):
        for name in names:
            if name not in members:
                received = ", ".join(sorted(members)) or "none"
                raise InputError(f"{path}: expected an array '{name}'. Received: {received}")
        check_memory(path, sum(archive.getinfo(members[name]).file_size for name in names))
        return {name: _member(path, archive, members[name]) for name in names}


def array_names(path: Path | str) -> list[str]:
    """Return the sorted array names of a .npz file; errors as in `read_arrays`."""
    with _archive(path) as (_, members):
        return sorted(members)


def array_bytes(path: Path | str, names: Iterable[str]) -> int:
    """Return the uncompressed size of named arrays of a .npz file in bytes; missing arrays count 0."""
    with _archive(path) as (archive, members):
        return sum(archive.getinfo(members[name]).file_size for name in names if name in members)


@contextlib.contextmanager
def _archive(path):
    """Yield the archive and {array name: member name}; turn errors of the readers into `InputError`."""
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive, {name.removesuffix(".npy"): name for name in archive.namelist()}
        except (UserError, MemoryError, OSError):
            raise
        # On crafted bytes the zip and npy readers raise many types: BadZipFile, struct.error, SyntaxError...
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InputError(
                f"{path}: cannot be read as an .npz file (damaged, or another format): {reason}"
            ) from error


def _member(path, archive, name):
    info = archive.getinfo(name)
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        stored_bytes = info.file_size - file.tell()
    if dtype.hasobject:
        raise InputError(
            f"{path}: array '{name}' contains Python objects, which could run code when read; "
            "save it with a numeric dtype"
        )
    # math.prod uses Python integers: NumPy's would overflow for a header with 2**70 items.
    expected_bytes = math.prod(shape) * dtype.itemsize
    if expected_bytes != stored_bytes:
        raise InputError(
            f"{path}: array '{name}' must have {expected_bytes} bytes, the size in its header for "
            f"{dtype} {shape}. Received: {stored_bytes} bytes"
        )
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
