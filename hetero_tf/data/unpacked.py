"""The memory that a data file may take once it is unpacked, estimated before it is taken.

A small file can claim any size: a page of zeros packs 10,000 to 1, and a category that repeats takes bits.
"""

from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory

# A file may grow by this factor, or to this number of bytes if that is more.
MOST_TIMES, ALWAYS = 200, 2**28


def most_unpacked(packed: int) -> int:
    """Return the bytes that a file of `packed` bytes may take unpacked."""
    return max(MOST_TIMES * packed, ALWAYS)


def check_unpacked(path: Path | str, size: int, packed: int, copies: int = 1, advice: str = "use a part of it") -> None:
    """Raise unless `size` bytes are in proportion to the file that they come from, and fit into memory.

    Args:
        path: The file, for the sentence.
        size: Bytes that it takes unpacked.
        packed: Bytes of the file.
        copies: How many times `size` is in memory at once.
        advice: What to do about it, for the sentence.

    Raises:
        InputError: They are more than `most_unpacked`.
        MemoryProblem: They do not fit into memory.
    """
    most = most_unpacked(packed)
    if size > most:
        raise InputError(
            f"{path}: needs {size / 2**20:,.0f} MiB unpacked, but may need at most {most / 2**20:,.0f} "
            f"({MOST_TIMES} times its size, or {ALWAYS // 2**20} MiB); {advice}"
        )
    check_memory(path, copies * size)
