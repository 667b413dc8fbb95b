"""Limits the unpacked size of data files, estimated before memory is allocated.

A small file can unpack to any size: a page of zeros compresses 10,000 to 1, and a repeated category takes a few bits.
"""

from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory

# A file may grow by MOST_TIMES, or to ALWAYS bytes if that is more.
MAX_GROWTH, MIN_LIMIT = 200, 2**28


def max_unpacked(packed: int) -> int:
    """Return the bytes that a file of `packed` bytes may take unpacked."""
    return max(MAX_GROWTH * packed, MIN_LIMIT)


def check_unpacked(path: Path | str, size: int, packed: int, copies: int = 1, advice: str = "use a part of it") -> None:
    """Raise an error if the unpacked data are out of proportion to their file or do not fit into memory.

    Args:
        path: The file, for the message.
        size: Unpacked size in bytes.
        packed: File size in bytes.
        copies: Copies of the data in memory at peak.
        advice: Suggestion for the message.

    Raises:
        InputError: `size` exceeds `max_unpacked`.
        MemoryProblem: The copies do not fit into memory.
    """
    limit = max_unpacked(packed)
    if size > limit:
        raise InputError(
            f"{path}: needs {size / 2**20:,.0f} MiB unpacked, but at most {limit / 2**20:,.0f} MiB are allowed "
            f"({MAX_GROWTH} times its size, or {MIN_LIMIT // 2**20} MiB); {advice}"
        )
    check_memory(path, copies * size)
