"""Examples on disk: an array backed by a .npy file that reads only the requested rows.

Rows are read by `pread` and not by a memory map: the pages that were read do not stay in memory, and a file that is
truncated during a run raises an error instead of SIGBUS.
"""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged, read_errors

# Bytes per block of a pass over all rows.
BLOCK = 2**24


@dataclass(frozen=True, eq=False)
class DiskArray:
    """Rows of a .npy file, or a selection of them in any order; only `array[rows]` reads data.

    Attributes:
        path: The file.
        file: The open file; its rows stay valid if the path is replaced by another file.
        first: Offset of the first row in bytes.
        dtype: Data type.
        row: Shape of a row.
        ids: int64 [n], the selected rows of the file; None: all rows in order.
        count: Number of selected rows.
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
        """Open a .npy file of numbers in C order.

        Raises:
            InputError: The file is damaged or has another format.
            DiskProblem: The operating system failed to read.
        """
        with read_errors(path):
            file = open(path, "rb", buffering=0)  # noqa: SIM115 (open to the end)
        try:
            mapped = np.lib.format.open_memmap(path, mode="r")
        # Malformed bytes make the reader raise many kinds of exceptions.
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise Damaged(f"{path}: cannot be read as a .npy file of numbers: {reason}") from error
        if mapped.ndim == 0 or not mapped.flags.c_contiguous:
            raise InputError(
                f"{path}: must contain numbers with at least one axis in C order; save it with "
                f"np.save(file, np.ascontiguousarray(array)). Received: {mapped.dtype} {mapped.shape}"
            )
        return cls(Path(path), file, mapped.offset, mapped.dtype, mapped.shape[1:], None, len(mapped))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the selected rows."""
        return (self.count, *self.row)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the selected rows in bytes."""
        return self.size * self.dtype.itemsize

    def __len__(self):
        return self.count

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Read rows by a slice or an integer array of any shape; return `[*rows.shape, *row]`.

        Raises:
            IndexError: A row is out of range.
            DiskProblem, Damaged: The rows could not be read.
        """
        positions = np.arange(*rows.indices(self.count)) if isinstance(rows, slice) else np.asarray(rows)
        if positions.size and not 0 <= positions.min() <= positions.max() < self.count:
            raise IndexError(f"`rows` must be in 0..{self.count - 1}. Received: {positions.min()} to {positions.max()}")
        values = np.empty((*positions.shape, *self.row), self.dtype)
        flat = positions.ravel() if self.ids is None else self.ids[positions.ravel()]
        if values.size:
            self._fill(values.reshape(-1).view(np.uint8).data, flat)
        return values

    def select(self, selected: np.ndarray) -> "DiskArray":
        """Return a view of the selected rows without reading; `selected` is bool `[n]` or an array of indices."""
        positions = np.flatnonzero(selected) if selected.dtype == bool else selected
        ids = positions if self.ids is None else self.ids[positions]
        return DiskArray(self.path, self.file, self.first, self.dtype, self.row, ids.astype(np.int64), len(ids))

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, in blocks of at most `BLOCK` bytes or one row."""
        count = max(BLOCK // max(self.nbytes // max(self.count, 1), 1), 1)
        for first in range(0, self.count, count):
            yield self[first : first + count]

    def _fill(self, buffer, ids):
        """Read rows of the file into a buffer, adjacent rows in one call."""
        row_bytes, begin = len(buffer) // len(ids), 0
        for end in [*(np.flatnonzero(np.diff(ids) != 1) + 1).tolist(), len(ids)]:
            part, offset = buffer[begin * row_bytes : end * row_bytes], self.first + int(ids[begin]) * row_bytes
            while part:
                with read_errors(self.path):
                    read = os.preadv(self.file.fileno(), [part], offset)
                if not read:
                    raise Damaged(f"{self.path}: was truncated after it was opened; restore it and start again")
                part, offset = part[read:], offset + read
            begin = end
