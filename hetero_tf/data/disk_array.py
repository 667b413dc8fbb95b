"""Examples that stay on disk: a .npy file of which only the rows that are asked for are read.

Rows are read by `pread`, not through a map of the file: what was read takes no memory afterwards, and a file that is
cut off while a run goes on is a sentence instead of the end of the process.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged, opened, reading

# Bytes that a pass over all rows holds at once.
BLOCK = 2**24


@dataclass(frozen=True, eq=False)
class DiskArray:
    """The rows of a .npy file, or some of them in any order; `array[rows]` reads, all else does not.

    Attributes:
        path: The file.
        file: The open file: its rows stay those of the start when another file takes its name.
        first: Position of its first row, in bytes.
        dtype: Of its numbers.
        row: Shape of a row.
        ids: int64 [n], which rows of the file these are; None: all of them, in order.
        count: How many these are.
    """

    path: Path
    file: BinaryIO
    first: int
    dtype: np.dtype
    row: tuple[int, ...]
    ids: np.ndarray | None
    count: int

    @classmethod
    def open(cls, path: Path | str) -> "DiskArray":
        """Opens a .npy file in C order; its header and its size are checked.

        Raises:
            InputError: It is no such file, or shorter or longer than its header says.
            DiskProblem: The operating system refused to read.
        """
        with opened(path) as checked:
            shape, dtype, first = _header(path, checked)
            claimed, size = math.prod(shape) * dtype.itemsize, os.fstat(checked.fileno()).st_size - first
            if claimed != size:
                raise Damaged(
                    f"{path}: must have the size that its header claims, {claimed} bytes for {dtype} {shape}. "
                    f"Received: {size} bytes"
                )
            file = open(os.dup(checked.fileno()), "rb", buffering=0)  # noqa: SIM115 (open to the end)
        return cls(Path(path), file, first, dtype, shape[1:], None, shape[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all rows together."""
        return (self.count, *self.row)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.size * self.dtype.itemsize

    @property
    def file_bytes(self) -> int:
        """Bytes of the whole file."""
        return os.fstat(self.file.fileno()).st_size

    def __len__(self):
        return self.count

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Reads rows: a slice, or whole numbers of any shape; `[*rows.shape, *row]`.

        Raises:
            IndexError: There is no such row.
            DiskProblem, Damaged: They could not be read.
        """
        wanted = np.arange(*rows.indices(self.count)) if isinstance(rows, slice) else np.asarray(rows)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.count:
            raise IndexError(f"`rows` must be in 0..{self.count - 1}. Received: {wanted.min()} to {wanted.max()}")
        found = np.empty((*wanted.shape, *self.row), self.dtype)
        flat = wanted.ravel() if self.ids is None else self.ids[wanted.ravel()]
        if found.size:
            self._fill(found.reshape(-1).view(np.uint8).data, flat)
        return found

    def of(self, chosen: np.ndarray) -> "DiskArray":
        """Returns the chosen rows, which are not read yet; bool `[n]` or their positions."""
        positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        ids = positions if self.ids is None else self.ids[positions]
        return DiskArray(self.path, self.file, self.first, self.dtype, self.row, ids.astype(np.int64), len(ids))

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields all rows in order, some at a time."""
        many = max(BLOCK // max(self.nbytes // max(self.count, 1), 1), 1)
        for first in range(0, self.count, many):
            yield self[first : first + many]

    def _fill(self, buffer, ids):
        """Reads rows of the file into a buffer, neighbours by one call."""
        each, begin = len(buffer) // len(ids), 0
        for end in [*(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]:
            part, place = buffer[begin * each : end * each], self.first + int(ids[begin]) * each
            while part:
                with reading(self.path):
                    read = os.preadv(self.file.fileno(), [part], place)
                if not read:
                    raise Damaged(f"{self.path}: became shorter since it was opened; restore it and start again")
                part, place = part[read:], place + read
            begin = end


def _header(path, file):
    """(shape, dtype, position of the first number) of a .npy file."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    # Crafted bytes make the reader fail in many ways.
    except Exception as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise Damaged(f"{path}: cannot be read as a .npy file, it is damaged or something else: {reason}") from error
    if dtype.hasobject or fortran or not shape:
        raise InputError(
            f"{path}: must hold numbers with at least one axis in C order; save it with "
            f"np.save(file, np.ascontiguousarray(array)). Received: {dtype} {shape}{', Fortran order' * fortran}"
        )
    return shape, dtype, file.tell()
