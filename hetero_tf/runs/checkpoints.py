"""Checkpoints: a round is on disk complete and checksummed under its final name, or it does not exist.

`save` writes `.tmp-round-000012/`, syncs it, renames it to `round-000012`, and only then removes older rounds.
`load_newest` returns the newest folder whose manifest and checksums are valid. A round that is saved again, because its
folder was damaged, becomes `round-000012.1`: a valid folder is never moved before its successor exists.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base import files, typed_json
from hetero_tf.base.errors import DiskProblem, InputError, MemoryProblem
from hetero_tf.base.files import Damaged
from hetero_tf.runs import manifest
from hetero_tf.runs.manifest import decode, encode, no_optional_arrays, require

_ROUND = re.compile(r"round-([0-9]{6,12})(?:\.([0-9]{1,6}))?")
OLD = ".old-"
_LEFT = re.compile(rf"\.(?:tmp|old)-{_ROUND.pattern}")
# A writer may prune a folder after a reader has listed it; the reader then lists again, at most this often.
LISTINGS = 20


@dataclass(frozen=True)
class SavedRound:
    """A loaded checkpoint: its arrays are read-only, and `skipped` has a message for each damaged newer folder."""

    round: int
    arrays: dict
    info: dict
    digest: str
    skipped: tuple[str, ...] = ()


def save(folder: Path | str, round_number: int, arrays: dict[str, np.ndarray], info: dict, keep: int) -> Path:
    """Save one round and remove older ones.

    Args:
        folder: Folder of the checkpoints, created if missing (its parent must exist). One writer at a time.
        round_number: Integer >= 0. Folders of later rounds are removed: they belong to an abandoned continuation.
        arrays: `{name: array of numbers or bools}`.
        info: Plain JSON dict with finite numbers.
        keep: Number of rounds to keep, including this one; at least 1.

    Returns:
        Path of the checkpoint.

    Raises:
        InputError: An argument cannot be stored.
        DiskProblem: The write failed. Earlier rounds are unchanged and no temporary folder remains.
    """
    folder = Path(folder)
    if keep < 1 or not 0 <= round_number < 10**12:
        raise InputError(
            f"`keep` must be at least 1 and `round_number` at least 0. "
            f"Received: keep={keep}, round_number={round_number}"
        )
    packed, specs = encode(arrays)
    contents: dict[str, bytes | memoryview] = {manifest.ARRAYS: packed, manifest.INFO: typed_json.dump(info, "`info`")}
    make(folder)
    sweep(folder)
    target = _next_name(folder, round_number)
    temporary = folder / (files.TEMPORARY + target.name)
    try:
        _write_files(temporary, contents, manifest.make(round_number, contents, specs))
        with files.disk_errors(target, "rename into place"):
            os.rename(temporary, target)
    except BaseException:
        files.discard(temporary)
        raise
    files.sync_folder(folder)
    _prune(folder, round_number, keep)
    return target


def load_newest(
    folder: Path | str,
    expect: dict[str, tuple] | None = None,
    optional: Callable = no_optional_arrays,
    with_arrays: bool = True,
) -> SavedRound | None:
    """Return the newest valid checkpoint. The function writes nothing, so it can run concurrently with a writer.

    Args:
        folder: Folder of the checkpoints; it may be missing.
        expect: `{name: (shape, dtype)}` to compare before memory is allocated, or None.
        optional: `name -> (shape, dtype)` of an array that may also be stored; None for an unknown name.
        with_arrays: Read and verify the arrays, and not only the size of their file.

    Returns:
        `SavedRound`, or None if there is none.

    Raises:
        InputError: All checkpoints are damaged, or the arrays are not the expected ones.
        DiskProblem, MemoryProblem: A read failed; older rounds are not tried.
    """
    for _ in range(LISTINGS):
        paths, skipped = rounds(folder), []
        for path in paths:
            try:
                checkpoint = read(path, expect, optional, with_arrays)
            except Damaged as damage:
                skipped.append(f"skipped {damage}")
            else:
                return dataclasses.replace(checkpoint, skipped=tuple(skipped))
        if rounds(folder) == paths:
            break
    if not paths:
        return None
    # Starting again would overwrite files that can perhaps be restored.
    raise InputError(
        f"{folder}: all {len(paths)} checkpoints are damaged ({'; '.join(skipped)}); "
        "restore one from a copy, or delete the folder to start again"
    )


def read(
    path: Path | str,
    expect: dict[str, tuple] | None = None,
    optional: Callable = no_optional_arrays,
    with_arrays: bool = True,
) -> SavedRound:
    """Read one checkpoint, see `load_newest`.

    Raises:
        Damaged: The checkpoint is incomplete or damaged.
        InputError: The arrays are not the expected ones.
        MemoryProblem: The arrays do not fit into memory.
    """
    path = Path(path)
    with files.read_errors(path):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        listed = manifest.parse(files.read_bytes(path / manifest.NAME, typed_json.LIMIT, folder), path / manifest.NAME)
        if listed.round != _number(path.name)[0]:
            raise Damaged(f"{path}: its manifest belongs to round {listed.round}")
        if expect is not None:
            require(listed.arrays, expect, path, optional)
        info = typed_json.parse(_read_verified(path, manifest.INFO, listed, folder), path / manifest.INFO)
        if not isinstance(info, dict):
            raise Damaged(f"{path / manifest.INFO}: holds no dict")
        arrays = {}
        if with_arrays:
            data = _read_verified(path, manifest.ARRAYS, listed, folder)
            arrays = decode(data, listed.arrays, path / manifest.ARRAYS)
        else:
            with files.open_file(path / manifest.ARRAYS, folder, follow=False) as file:
                manifest.verify_size(os.fstat(file.fileno()).st_size, manifest.ARRAYS, listed, path / manifest.ARRAYS)
        return SavedRound(listed.round, arrays, info, listed.digest)
    except MemoryError as error:
        raise MemoryProblem(f"{path}: its arrays do not fit into memory; use a machine with more of it") from error
    finally:
        os.close(folder)


def rounds(folder: Path | str) -> list[Path]:
    """Return the paths of the checkpoints, newest first, without reading them."""
    folder = Path(folder)
    with files.read_errors(folder):
        files.check_write_target(folder, folder=True)
        names = os.listdir(folder) if folder.exists() else []
    return [folder / name for name in sorted(filter(_ROUND.fullmatch, names), key=_number, reverse=True)]


def numbers(folder: Path | str) -> list[int]:
    """Return the round numbers of the checkpoints, newest first, without reading them."""
    return [_number(path.name)[0] for path in rounds(folder)]


def read_digest(path: Path) -> str:
    """Return the digest of a checkpoint, see `SavedRound`; raise `Damaged` if its manifest is damaged."""
    return manifest.parse(files.read_bytes(path / manifest.NAME, typed_json.LIMIT), path / manifest.NAME).digest


def sweep(folder: Path | str) -> None:
    """Remove temporary folders of a killed writer. Only the writer that holds the lock may call it."""
    files.remove_leftovers(folder, _LEFT)


def make(folder: Path) -> None:
    """Create the folder of the checkpoints if it is missing; its parent must exist."""
    files.check_write_target(folder, folder=True)
    if not folder.is_dir():
        with files.disk_errors(folder, "create"):
            os.mkdir(folder)
        files.sync_folder(folder.parent)


def _write_files(temporary, contents, manifest_bytes):
    with files.disk_errors(temporary, "create"):
        os.mkdir(temporary)
    for name, data in contents.items():
        files.write_new(temporary / name, data)
    files.write_new(temporary / manifest.NAME, manifest_bytes)
    files.sync_folder(temporary)


def _read_verified(path, name, listed, folder):
    data = files.read_bytes(path / name, listed.files[name].bytes, folder)
    manifest.verify(data, name, listed, path / name)
    return data


def _number(name):
    """(round, attempt) of a folder name; (-1, 0) for other names."""
    match = _ROUND.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _next_name(folder, round_number):
    name = f"round-{round_number:06d}"
    attempts = [_number(path.name)[1] for path in rounds(folder) if _number(path.name)[0] == round_number]
    return folder / (f"{name}.{max(attempts) + 1}" if attempts else name)


def _prune(folder, round_number, keep):
    newest: dict[int, Path] = {}
    for path in rounds(folder):
        newest.setdefault(_number(path.name)[0], path)
    remaining = [path for number, path in newest.items() if number <= round_number][:keep]
    try:
        for path in rounds(folder):
            if path not in remaining:
                # Rename first: a folder under its final name is never partially deleted.
                with files.disk_errors(path, "rename"):
                    os.rename(path, folder / (OLD + path.name))
        sweep(folder)
    except DiskProblem as problem:
        raise DiskProblem(f"round {round_number} is saved, but an older one cannot be removed: {problem}") from problem
