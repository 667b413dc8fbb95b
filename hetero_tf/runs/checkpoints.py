"""Checkpoints: a round is on disk complete under its final name, or it does not exist.

A checkpoint is one .npz file, such as `round-000012.npz`: the arrays by name, and JSON in the array `info`. The file
replaces an older one atomically, and the archive has a checksum of each array. `load_newest` returns the newest file
without damage.
"""

import contextlib
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hetero_tf.base import files, typed_json
from hetero_tf.base.errors import DiskProblem, InputError, MemoryProblem, UserError
from hetero_tf.base.files import Damaged

_ROUND = re.compile(r"round-([0-9]{6,12})\.npz")
_LEFT = re.compile(rf"{re.escape(files.TEMPORARY)}{_ROUND.pattern}\.[0-9]+")
INFO = "info"
# A writer may remove a file after a reader has listed it; the reader then lists again, at most this often.
LISTINGS = 20
Spec = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class SavedRound:
    """A loaded checkpoint; `info` has its "round", and `skipped` a message for each damaged newer one."""

    round: int
    arrays: dict
    info: dict
    skipped: tuple[str, ...] = ()


def save(
    folder: Path | str, round_number: int, arrays: dict[str, np.ndarray], info: dict, keep: int, best: int | None = None
) -> None:
    """Save one round and remove older ones.

    Args:
        folder: Folder of the checkpoints, created if missing (its parent must exist). One writer at a time.
        round_number: Integer >= 0. Files of later rounds are removed: they belong to an abandoned continuation.
        arrays: `{name: array of numbers or bools}`.
        info: Plain JSON dict with finite numbers.
        keep: Number of rounds to keep, including this one; at least 1.
        best: Number of an older round to keep in addition.

    Raises:
        InputError: `info` cannot be stored.
        DiskProblem: The write failed. Earlier rounds are unchanged and no temporary file remains.
    """
    folder = Path(folder)
    content = typed_json.dump({**info, "round": round_number}, "`info`")
    members: dict[str, Any] = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    members[INFO] = np.frombuffer(content, np.uint8)
    files.make_folder(folder)
    with files.replace_file(path_of(folder, round_number)) as file:
        np.savez(file, **members)
    remaining = [number for number in numbers(folder) if number <= round_number][:keep]
    try:
        for number in numbers(folder):
            if number not in (*remaining, best) or number > round_number:
                files.remove(path_of(folder, number))
    except DiskProblem as problem:
        raise DiskProblem(f"round {round_number} is saved, but an older one cannot be removed: {problem}") from problem


def load_newest(
    folder: Path | str,
    expect: dict[str, Spec] | None = None,
    optional: Callable[[str], Spec | None] = lambda name: None,
    with_arrays: bool = True,
) -> SavedRound | None:
    """Return the newest valid checkpoint. The function writes nothing, so it can run concurrently with a writer.

    Args:
        folder: Folder of the checkpoints; it may be missing.
        expect, optional, with_arrays: See `read`.

    Returns:
        `SavedRound`, or None if there is none.

    Raises:
        InputError: All checkpoints are damaged, or the arrays are not the expected ones.
        DiskProblem, MemoryProblem: A read failed; older rounds are not tried.
    """
    for _ in range(LISTINGS):
        listed, skipped = numbers(folder), list[str]()
        for number in listed:
            try:
                return read(folder, number, expect, optional, with_arrays, tuple(skipped))
            except Damaged as damage:
                skipped.append(f"skipped {damage}")
        if numbers(folder) == listed:
            break
    if not listed:
        return None
    # Starting again would overwrite files that can perhaps be restored.
    raise InputError(
        f"{folder}: all {len(listed)} checkpoints are damaged ({'; '.join(skipped)}); "
        "restore one from a copy, or delete the folder to start again"
    )


def read(
    folder: Path | str,
    number: int,
    expect: dict[str, Spec] | None = None,
    optional: Callable[[str], Spec | None] = lambda name: None,
    with_arrays: bool = True,
    skipped: tuple[str, ...] = (),
) -> SavedRound:
    """Read the checkpoint of one round.

    Args:
        expect: `{name: (shape, dtype)}` to compare before memory is allocated, or None.
        optional: `name -> (shape, dtype)` of an array that may also be stored; None for an unknown name.
        with_arrays: Read the arrays, and not only `info`.

    Raises:
        Damaged: The checkpoint is incomplete or damaged.
        InputError: The arrays are not the expected ones.
        MemoryProblem: The arrays do not fit into memory.
    """
    path = path_of(folder, number)
    with files.open_file(path, follow=False) as file, _archive(file, path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        info = typed_json.parse(_read_array(archive, members.pop(INFO)).tobytes(), path)
        if not isinstance(info, dict) or info.get("round") != number:
            raise Damaged(f"{path}: its {INFO} is not that of round {number}")
        if expect is not None:
            _check_expected({name: _spec(archive, member) for name, member in members.items()}, expect, optional, path)
        arrays = {name: _read_array(archive, member) for name, member in members.items()} if with_arrays else {}
        return SavedRound(number, arrays, info, skipped)


@contextlib.contextmanager
def _archive(file, path) -> Iterator[zipfile.ZipFile]:
    """Open the archive, and turn errors of the zip and npy readers into `Damaged`."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
                raise ValueError("its arrays are larger than the file")
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("an array is compressed")
            yield archive
    except MemoryError as error:
        raise MemoryProblem(f"{path}: its arrays do not fit into memory; use a machine with more of it") from error
    except UserError:
        raise
    # On damaged bytes they raise many types: BadZipFile, struct.error, KeyError, SyntaxError, NotImplementedError...
    except Exception as error:
        raise Damaged(f"{path}: is damaged: {error}") from error


def _read_header(file, member):
    """Return shape and dtype of the header of an array, after a check of its size."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"array {member.filename!r} has an unknown npy version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in "biufc" or is_fortran:
        raise ValueError(f"array {member.filename!r} must hold numbers or bools in C order. Received: {dtype}")
    if file.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
        raise ValueError(f"array {member.filename!r} has {member.file_size} bytes, and the shape {list(shape)}")
    return shape, dtype


def _spec(archive, member):
    with archive.open(member) as file:
        shape, dtype = _read_header(file, member)
        return shape, dtype.name


def _read_array(archive, member):
    with archive.open(member) as file:
        shape, dtype = _read_header(file, member)
        return np.ndarray(shape, dtype, buffer=file.read())


def _check_expected(specs, expect, optional, path):
    """Raise `InputError` with the first difference between stored and expected arrays."""
    for name in expect | specs:
        shape, dtype = expect.get(name) or optional(name) or (None, None)
        if shape is None:
            difference = "is not expected"
        elif name not in specs:
            difference = f"is missing, expected {dtype}{list(shape)}"
        elif specs[name] != (tuple(shape), np.dtype(dtype).name):
            difference = f"is {specs[name][1]}{list(specs[name][0])}, expected {dtype}{list(shape)}"
        else:
            continue
        raise InputError(
            f"{path}: array {name!r} {difference}; another recipe saved it: continue with that recipe, or choose a new "
            "run folder"
        )


def path_of(folder: Path | str, number: int) -> Path:
    """Return the path of the checkpoint of a round."""
    return Path(folder, f"round-{number:06d}.npz")


def numbers(folder: Path | str) -> list[int]:
    """Return the round numbers of the checkpoints, newest first, without reading them."""
    with files.read_errors(folder):
        files.check_write_target(folder, folder=True)
        names = os.listdir(folder) if os.path.exists(folder) else []
    return sorted((int(match[1]) for match in map(_ROUND.fullmatch, names) if match), reverse=True)


def sweep(folder: Path | str) -> None:
    """Remove temporary files of a killed writer. Only the writer that holds the lock may call it."""
    files.remove_leftovers(folder, _LEFT)
