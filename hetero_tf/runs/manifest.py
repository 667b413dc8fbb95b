"""The manifest of a checkpoint: size and sha256 of each file; name, shape and dtype of each array."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from hetero_tf.base.files import Damaged
from hetero_tf.base.typed_json import Natural, from_json
from hetero_tf.runs import plain_json
from hetero_tf.runs.npz_bytes import OVERHEAD, Spec

NAME = "MANIFEST.json"
ARRAYS = "arrays.npz"
INFO = "info.json"
MOST_AXES = 32
Format = Literal["hetero_tf sealed folder 1"]
(FORMAT,) = get_args(Format)


@dataclass(frozen=True)
class FileEntry:
    """Size and digest of one file."""

    bytes: Natural
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint: `digest` is the sha256 of all other entries."""

    format: Format
    round: Natural
    files: dict[str, FileEntry]
    arrays: tuple[Spec, ...]
    digest: str

    def __post_init__(self):
        # Exactly these names, so a manifest cannot refer to files outside its folder.
        if set(self.files) != {ARRAYS, INFO}:
            raise ValueError(f"lists files {str(sorted(self.files))[:100]}, expected {[ARRAYS, INFO]}")
        if len({spec.name for spec in self.arrays}) != len(self.arrays):
            raise ValueError("one array name appears twice")
        if any(len(spec.shape) > MOST_AXES for spec in self.arrays):
            raise ValueError(f"an array has more than {MOST_AXES} axes")
        claimed, stored = sum(spec.nbytes for spec in self.arrays), self.files[ARRAYS].bytes
        if not claimed <= stored <= claimed + OVERHEAD * (len(self.arrays) + 1):
            raise ValueError(f"its arrays take {claimed} bytes, but its {ARRAYS} has {stored}")
        if self.files[INFO].bytes > plain_json.LIMIT:
            raise ValueError(f"its {INFO} is larger than {plain_json.LIMIT} bytes")


@dataclass(frozen=True)
class _Document:
    contents: dict[str, Any]
    sha256: str


def make(round_number: int, contents: dict[str, bytes | memoryview], specs: Sequence[Spec]) -> bytes:
    """Return the manifest as bytes.

    Args:
        round_number: Integer >= 0.
        contents: `{file name: bytes-like}`.
        specs: `Spec`s of the arrays, in the order of the npz file.
    """
    body = {
        "format": FORMAT,
        "round": int(round_number),
        "files": {
            name: {"bytes": memoryview(data).nbytes, "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in contents.items()
        },
        "arrays": [{"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype} for spec in specs],
    }
    # The manifest has its own checksum: it detects a flipped bit in an array's name.
    return plain_json.dump({"contents": body, "sha256": _digest(body)}, "the manifest")


def parse(data: bytes, path: Path) -> Manifest:
    """Return the `Manifest` of untrusted bytes after all checks.

    Raises:
        Damaged: Its checksum or a value is wrong. No memory is allocated for sizes that it claims.
    """
    document = from_json(_Document, plain_json.parse(data, path), path)
    if document.sha256 != _digest(document.contents):
        raise Damaged(f"{path}: its checksum does not match its contents")
    return from_json(Manifest, {**document.contents, "digest": document.sha256}, path)


def verify(data: bytes, name: str, manifest: Manifest, path: Path) -> None:
    """Compare the bytes of one file with the manifest; raise Damaged."""
    entry = manifest.files[name]
    if len(data) != entry.bytes:
        raise Damaged(f"{path}: has {len(data)} bytes, the manifest says {entry.bytes}")
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise Damaged(f"{path}: its sha256 differs from the manifest's")


def _digest(body):
    return hashlib.sha256(plain_json.dump(body, "the manifest")).hexdigest()
