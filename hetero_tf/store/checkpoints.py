"""Sealed folders: a round is on disk whole and checksummed under its final name, or it is not there.

`save` writes `.tmp-round-000012/` and waits for the disk, then renames it to `round-000012` and only then
removes older rounds. `load_newest` takes the newest folder whose manifest and checksums hold. A round that is
saved again (after its folder was found damaged) becomes `round-000012.1`, so a good folder is never moved aside
before its successor stands.
"""

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base import files, folders
from hetero_tf.base.errors import DiskProblem, InputError, MemoryProblem
from hetero_tf.base.files import Damaged
from hetero_tf.store import manifest, plain_json
from hetero_tf.store.npz_bytes import decode, encode, no_other, require

_ROUND = re.compile(r"round-([0-9]{6,12})(?:\.([0-9]{1,6}))?")
OLD = ".old-"
_LEFT = re.compile(rf"\.(?:tmp|old)-{_ROUND.pattern}")
# A reader may list a folder that the writer prunes before it is opened; each new listing is newer than the last.
LISTINGS = 20


@dataclass(frozen=True)
class Sealed:
    """A loaded round.

    Attributes:
        round: Its number.
        arrays: `{name: read-only array}`.
        info: As saved.
        seal: Hex digest of all that the folder holds; no other content has it.
        skipped: One sentence per bad folder.
    """

    round: int
    arrays: dict
    info: dict
    seal: str
    skipped: tuple[str, ...] = ()


def save(folder: Path | str, round_number: int, arrays: dict[str, np.ndarray], info: dict, keep: int) -> Path:
    """Seals one round and removes older ones.

    Args:
        folder: Folder of the sealed rounds, made if missing (its parent must exist). One writer at a time.
        round_number: Integer >= 0. Folders of later rounds are removed: that future did not happen.
        arrays: `{name: array of numbers or bools}`.
        info: Plain JSON dict with finite numbers.
        keep: Rounds that stay, this one included; at least 1.

    Returns:
        Path of the sealed folder.

    Raises:
        InputError: An argument cannot be stored.
        DiskProblem: The system refused. The rounds before are untouched and no temporary folder is left.
    """
    folder = Path(folder)
    if keep < 1 or not 0 <= round_number < 10**12:
        raise InputError(
            f"`keep` must be at least 1 and `round_number` at least 0. "
            f"Received: keep={keep}, round_number={round_number}"
        )
    packed, specs = encode(arrays)
    contents: dict[str, bytes | memoryview] = {manifest.ARRAYS: packed, manifest.INFO: plain_json.dump(info, "`info`")}
    make(folder)
    sweep(folder)
    target = _next_name(folder, round_number)
    temporary = folder / (files.TEMPORARY + target.name)
    try:
        _fill(temporary, contents, manifest.make(round_number, contents, specs))
        with files.disk(target, "rename into place"):
            os.rename(temporary, target)
    except BaseException:
        files.discard(temporary)
        raise
    files.sync_folder(folder)
    _prune(folder, round_number, keep)
    return target


def load_newest(
    folder: Path | str, expect: dict[str, tuple] | None = None, optional: Callable = no_other
) -> Sealed | None:
    """Returns the newest round that is whole. It writes nothing, so it may run beside a writer.

    Args:
        folder: Folder of sealed rounds; it may be missing.
        expect: `{name: (shape, dtype)}` to compare before memory is taken, or None.
        optional: `name -> (shape, dtype)` of an array that may be stored too, or None where a name is unknown.

    Returns:
        `Sealed`, or None when there is no round at all.

    Raises:
        InputError: Rounds are there but none is whole, or the arrays are not the expected ones.
        DiskProblem, MemoryProblem: The system refused; no older round is taken instead.
    """
    for _ in range(LISTINGS):
        paths, skipped = rounds(folder), []
        for path in paths:
            try:
                saved = read(path, expect, optional)
            except Damaged as damage:
                skipped.append(f"skipped {damage}")
            else:
                return dataclasses.replace(saved, skipped=tuple(skipped))
        if rounds(folder) == paths:
            break
    if not paths:
        return None
    # To start again in silence would overwrite what a person may still be able to rescue.
    raise InputError(
        f"{folder}: none of its {len(paths)} rounds is whole ({'; '.join(skipped)}); "
        "restore one from a copy, or delete the folder to start again"
    )


def read(path: Path | str, expect: dict[str, tuple] | None = None, optional: Callable = no_other) -> Sealed:
    """Returns one sealed folder; `expect` and `optional` as in `load_newest`.

    Raises:
        Damaged: It is not whole.
        InputError: The arrays are not the expected ones.
        MemoryProblem: The arrays do not fit.
    """
    path = Path(path)
    with files.reading(path):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        listed = manifest.parse(files.read_bytes(path / manifest.NAME, plain_json.LIMIT, folder), path / manifest.NAME)
        if listed.round != _number(path.name)[0]:
            raise Damaged(f"{path}: its manifest is that of round {listed.round}")
        if expect is not None:
            require(listed.arrays, expect, path, optional)
        info = plain_json.parse(_verified(path, manifest.INFO, listed, folder), path / manifest.INFO)
        if not isinstance(info, dict):
            raise Damaged(f"{path / manifest.INFO}: holds no dict")
        data = _verified(path, manifest.ARRAYS, listed, folder)
        return Sealed(listed.round, decode(data, listed.arrays, path / manifest.ARRAYS), info, listed.seal)
    except MemoryError as error:
        raise MemoryProblem(f"{path}: its arrays do not fit into memory; use a machine with more of it") from error
    finally:
        os.close(folder)


def newest_without_arrays(folder: Path | str) -> Sealed | None:
    """Returns the newest round whose manifest and info are whole, without its arrays, which are not read.

    Raises:
        InputError: Rounds are there, but none is so.
    """
    skipped: list[str] = []
    for path in rounds(folder):
        try:
            listed = manifest.parse(files.read_bytes(path / manifest.NAME, plain_json.LIMIT), path / manifest.NAME)
            info = plain_json.parse(_verified(path, manifest.INFO, listed, None), path / manifest.INFO)
            if (
                not isinstance(info, dict)
                or (path / manifest.ARRAYS).stat().st_size != listed.files[manifest.ARRAYS][0]
            ):
                raise Damaged(f"{path}: is not what was sealed")
        except (Damaged, OSError) as damage:
            skipped.append(str(damage))
        else:
            return Sealed(listed.round, {}, info, listed.seal, tuple(skipped))
    if skipped:
        raise InputError(f"{folder}: none of its {len(skipped)} rounds is whole ({'; '.join(skipped)})")
    return None


def rounds(folder: Path | str) -> list[Path]:
    """Returns the paths of the sealed folders, newest first, without looking into them."""
    folder = Path(folder)
    with files.reading(folder):
        files.check_place(folder, folder=True)
        names = os.listdir(folder) if folder.exists() else []
    return [folder / name for name in sorted(filter(_ROUND.fullmatch, names), key=_number, reverse=True)]


def numbers(folder: Path | str) -> list[int]:
    """Returns the numbers of the sealed rounds, newest first, without looking into their folders."""
    return [_number(path.name)[0] for path in rounds(folder)]


def seal_of(path: Path) -> str:
    """Returns the seal of a sealed folder, see `Sealed`; raises `Damaged` if its manifest is not whole."""
    return manifest.parse(files.read_bytes(path / manifest.NAME, plain_json.LIMIT), path / manifest.NAME).seal


def sweep(folder: Path | str) -> None:
    """Removes what a killed writer left. Only the writer that holds the lock may call it."""
    folders.sweep(folder, _LEFT)


def make(folder: Path) -> None:
    """Makes the folder of sealed rounds, if it is missing; its parent must exist."""
    files.check_place(folder, folder=True)
    if not folder.is_dir():
        with files.disk(folder, "create"):
            os.mkdir(folder)
        files.sync_folder(folder.parent)


def _fill(temporary, contents, sealing):
    with files.disk(temporary, "create"):
        os.mkdir(temporary)
    for name, data in contents.items():
        files.write_new(temporary / name, data)
    files.write_new(temporary / manifest.NAME, sealing)
    files.sync_folder(temporary)


def _verified(path, name, listed, folder):
    data = files.read_bytes(path / name, listed.files[name][0], folder)
    manifest.verify(data, name, listed, path / name)
    return data


def _number(name):
    """(round, attempt) of a folder's name; other names are attempt 0 of round -1."""
    match = _ROUND.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _next_name(folder, round_number):
    name = f"round-{round_number:06d}"
    attempts = [_number(path.name)[1] for path in rounds(folder) if _number(path.name)[0] == round_number]
    return folder / (f"{name}.{max(attempts) + 1}" if attempts else name)


def _prune(folder, round_number, keep):
    newest = {}
    for path in rounds(folder):
        newest.setdefault(_number(path.name)[0], path)
    stay = [path for number, path in newest.items() if number <= round_number][:keep]
    try:
        for path in rounds(folder):
            if path not in stay:
                # Renamed first: a folder under its own name is never half deleted.
                with files.disk(path, "rename"):
                    os.rename(path, folder / (OLD + path.name))
        sweep(folder)
    except DiskProblem as problem:
        raise DiskProblem(f"round {round_number} is saved, but an older one stays in the way: {problem}") from problem
