"""Reads .npz files of unknown origin: without pickle, and every header is checked before memory is taken for it."""

import contextlib
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import opened
from hetero_tf.base.hardware import check_memory


def read_arrays(path: Path | str, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Reads named arrays of a .npz file.

    Args:
        path: File to read.
        names: Array names; other arrays of the file are not read.

    Returns:
        Dictionary name -> array.

    Raises:
        InputError: The file is no regular file or no .npz, lacks an array, or an array is damaged or holds objects.
        MemoryProblem: The arrays need more than the memory of this machine.
        DiskProblem: The operating system refused to read.
    """
    with _archive(path) as (archive, members):
        for name in names:
            if name not in members:
                received = ", ".join(sorted(members)) or "none"
                raise InputError(f"{path}: expected an array '{name}'. Received: {received}")
        check_memory(path, sum(archive.getinfo(members[name]).file_size for name in names))
        return {name: _member(path, archive, members[name]) for name in names}


def array_names(path: Path | str) -> list[str]:
    """Returns the sorted names of the arrays of a .npz file; raises what `read_arrays` raises."""
    with _archive(path) as (_, members):
        return sorted(members)


def array_bytes(path: Path | str, names: Iterable[str]) -> int:
    """Return the unpacked bytes of named arrays of a .npz file; 0 for one that it lacks."""
    with _archive(path) as (archive, members):
        return sum(archive.getinfo(members[name]).file_size for name in names if name in members)


@contextlib.contextmanager
def _archive(path):
    """Yields the archive and {array name: member name}; turns every error of the readers into a sentence."""
    with opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive, {name.removesuffix(".npy"): name for name in archive.namelist()}
        except (UserError, MemoryError, OSError):
            raise
        # Crafted bytes make the zip and npy readers fail in many ways: BadZipFile, struct.error, SyntaxError...
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InputError(
                f"{path}: cannot be read as an .npz file, it is damaged or something else: {reason}"
            ) from error


def _member(path, archive, name):
    info = archive.getinfo(name)
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        stored = info.file_size - file.tell()
    if dtype.hasobject:
        raise InputError(
            f"{path}: array '{name}' holds Python objects, which could run code when read; save it with a numeric dtype"
        )
    # math.prod counts in Python integers: NumPy's would wrap around on a header that claims 2**70 items.
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != stored:
        raise InputError(
            f"{path}: array '{name}' must have the size that its header claims, {claimed} bytes for "
            f"{dtype} {shape}. Received: {stored} bytes"
        )
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
