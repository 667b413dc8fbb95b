"""Reads .npz files without pickle, since objects of a file could run code."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import open_file
from hetero_tf.base.hardware import check_memory


def read_arrays(path: Path | str, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read named arrays of a .npz file.

    Returns:
        Dictionary name -> array.

    Raises:
        InputError: The file is not a regular .npz file, lacks an array, or an array is damaged or contains objects.
        MemoryProblem: The arrays exceed the memory of this machine.
        DiskProblem: The operating system failed to read.
    """
    names = list(names)
    with _open(path) as archive:
        if not set(names) <= set(archive.files):
            received = ", ".join(sorted(archive.files)) or "none"
            raise InputError(f"{path}: expected the arrays {', '.join(names)}. Received: {received}")
        sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
        check_memory(path, sum(sizes[name] for name in names))
        arrays = {name: archive[name] for name in names}
        # NumPy returns the bytes of a member in another format.
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("a member is not an array")
        return arrays


def array_names(path: Path | str) -> list[str]:
    """Return the sorted array names of a .npz file; errors as in `read_arrays`."""
    with _open(path) as archive:
        return sorted(archive.files)


@contextlib.contextmanager
def _open(path):
    """Yield the archive; turn errors of the readers into `InputError`."""
    with open_file(path) as file:
        try:
            with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
                yield archive
        except (UserError, MemoryError, OSError):
            raise
        # On damaged bytes the zip and npy readers raise many types: BadZipFile, struct.error, SyntaxError...
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            if "allow_pickle" in reason:
                reason = "contains Python objects, which could run code when read; save numbers or texts"
            raise InputError(f"{path}: cannot be read as an .npz file: {reason}") from error
