"""Caches decoded arrays between runs: decoding 70,000 images takes seconds, reading their pixels a tenth of one.

Each entry is a folder of .npy files in the user's cache folder, which can be deleted between runs. Its name contains a
hash of the source files, options and versions, so that a change decodes the data again. An entry gets its name only
when it is complete.
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hetero_tf.base import processes
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError, UserError
from hetero_tf.base.files import TEMPORARY, create_file, discard, disk_errors, draft_path, remove, remove_leftovers
from hetero_tf.base.hardware import check_memory, core_count, memory_limit
from hetero_tf.base.version import __version__
from hetero_tf.data.disk_array import DiskArray

FOLDER = Path("~/.cache/hetero_tf/decoded")
# Smaller sets load in less than a second; larger ones stay on disk.
SMALLEST, LARGEST = 10_000, 2**31
# Files that are decoded in parallel and yielded together.
AT_ONCE = 64
# Hexadecimal digits of the hash in the name of an entry.
KEY = 16


def is_large(size: int) -> bool:
    """Return True if `size` bytes of pixels should stay on disk: above `LARGEST` or a quarter of memory."""
    return size > min(LARGEST, memory_limit() // 4)


def load_cached(
    name: str,
    options: list,
    source: Path,
    names: Sequence[str],
    read: Callable[[], dict[str, np.ndarray | Iterator[np.ndarray]]],
    files: Iterable[str | Path] | None = None,
    large: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """Return the arrays of `read()`, from the cache if possible; a cache that cannot be used is ignored.

    Args:
        name: Name of the data set, for the name of the entry.
        options: Options that affect the arrays; JSON values.
        source: Folder of the data; each one has entries of its own.
        names: Names of the arrays.
        read: `() -> {name: array}`; an iterator yields blocks of its rows.
        files: The data files, of which a change of a name, size or time invalidates the entry; None: those of `source`.
        large: Shape of the only array, of pictures, if its rows stay on disk as `DiskArray`; None: arrays in memory.

    Raises:
        DiskProblem: The cache folder is full or not writable, and the array is large.
        InputError: `read` rejects a file.
        MemoryProblem: There is no cache folder, and the array is larger than half of the memory.
    """
    try:
        folder = _entry(name, options, source, files)
    # The user has no home folder, or the files are not local.
    except (RuntimeError, OSError):
        if large:
            check_memory(source, 2 * math.prod(large))
        return _in_memory(read())
    with contextlib.suppress(UserError, OSError, MemoryError):
        stored = {each: DiskArray.open(folder / f"{each}.npy") for each in names}
        return {each: array if large else array[:] for each, array in stored.items()}
    if large:
        Console(sys.stderr).say(
            f"decoding {large[0]:,} pictures of {source}: {math.prod(large) / 2**30:.1f} GiB, cached for later runs in "
            f"{folder}"
        )
        with disk_errors(folder, "write"):
            _write(folder, {each: (large, blocks) for each, blocks in read().items()})
        return {each: DiskArray.open(folder / f"{each}.npy") for each in names}
    arrays = _in_memory(read())
    if max(map(len, arrays.values())) >= SMALLEST and sum(array.nbytes for array in arrays.values()) <= LARGEST:
        with contextlib.suppress(OSError, UserError):
            _write(folder, {each: (array.shape, [array]) for each, array in arrays.items()})
    return arrays


def _in_memory(arrays):
    is_array = {name: isinstance(array, np.ndarray) for name, array in arrays.items()}
    return {name: array if is_array[name] else np.concatenate(list(array)) for name, array in arrays.items()}


def decode_blocks(
    files: Iterable[tuple[str, Callable[[], bytes]]], decode: Callable[[bytes], np.ndarray]
) -> Iterator[np.ndarray]:
    """Decode files in parallel, and yield their rows in blocks of `AT_ONCE` files.

    Args:
        files: `(name, () -> content)` of each file.
        decode: `content -> row`.

    Raises:
        InputError: A file cannot be decoded.
    """

    def decode_file(name, read):
        content = read()
        try:
            return decode(content)
        except InputError as error:
            raise InputError(f"{name}: {error}") from error

    files = iter(files)
    with ThreadPoolExecutor(core_count()) as workers:
        while batch := list(itertools.islice(files, AT_ONCE)):
            yield np.stack(list(workers.map(decode_file, *zip(*batch))))


def _entry(name, options, source, files=None):
    """Return the folder of an entry: NAME, a hash of the folder, and one of options, package versions and files."""
    packages = ("tensorflow", "tensorflow-datasets", "pillow")
    digest = hashlib.sha256(json.dumps([options, __version__, *map(metadata.version, packages)]).encode())
    for path in sorted(map(str, source.iterdir() if files is None else files)):
        status = os.stat(path)
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    of_folder = hashlib.sha256(str(source.absolute()).encode()).hexdigest()[:KEY]
    stem = f"{re.sub(r'[^a-zA-Z0-9_.-]', '-', name)}-{of_folder}"
    return FOLDER.expanduser() / f"{stem}-{digest.hexdigest()[:KEY]}"


def _write(folder, arrays):
    """Remove earlier versions of an entry and drafts of killed processes; fill a draft, and rename it to the entry.

    Args:
        folder: The entry.
        arrays: `(shape, blocks of rows)` of each array by name.
    """
    stem, draft = folder.name[: -KEY - 1], draft_path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in folder.parent.glob(f"{stem}-{'[0-9a-f]' * KEY}"):
        remove(path)
    remove_leftovers(folder.parent, re.compile(rf"{re.escape(f'{TEMPORARY}{stem}-')}.*\.(?P<process>\d+)"))
    with processes.before_exit(lambda: discard(draft)):
        try:
            draft.mkdir()
            for name, (shape, blocks) in arrays.items():
                with create_file(draft / f"{name}.npy") as file:
                    for index, block in enumerate(map(np.ascontiguousarray, blocks)):
                        if index == 0:
                            header = np.lib.format.header_data_from_array_1_0(block)
                            np.lib.format.write_array_header_1_0(file, {**header, "shape": shape})
                        file.write(block.data)
            os.rename(draft, folder)
        except BaseException as error:
            discard(draft)
            # Of two processes that write an entry at the same time, the first one wins.
            if not isinstance(error, OSError) or not folder.exists():
                raise
