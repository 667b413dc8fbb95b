"""The manifest of a checkpoint: size and sha256 of each file; name, shape and dtype of each array."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.files import Damaged
from hetero_tf.runs import plain_json
from hetero_tf.runs.npz_bytes import DTYPES, OVERHEAD, Spec

NAME = "MANIFEST.json"
FORMAT = "hetero_tf sealed folder 1"
ARRAYS = "arrays.npz"
INFO = "info.json"
LONGEST_AXIS = 2**40


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint: `files` is `{name: (bytes, sha256)}`, `digest` the sha256 of the manifest."""

    round: int
    files: dict
    arrays: tuple[Spec, ...]
    digest: str


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
    document = plain_json.parse(data, path)
    body = _field(document, "contents", dict, path)
    digest = _field(document, "sha256", str, path)
    if digest != _digest(body):
        raise Damaged(f"{path}: its checksum does not match its contents")
    if body.get("format") != FORMAT:
        raise Damaged(f"{path}: unknown format {str(body.get('format'))[:50]!r}, expected {FORMAT!r}")
    manifest = Manifest(_natural(body, "round", path), _files(body, path), _arrays(body, path), digest)
    _compare_sizes(manifest, path)
    return manifest


def verify(data: bytes, name: str, manifest: Manifest, path: Path) -> None:
    """Compare the bytes of one file with the manifest; raise Damaged."""
    size, sha256 = manifest.files[name]
    if len(data) != size:
        raise Damaged(f"{path}: has {len(data)} bytes, the manifest says {size}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(f"{path}: its sha256 differs from the manifest's")


def _digest(body):
    return hashlib.sha256(plain_json.dump(body, "the manifest")).hexdigest()


def _field(mapping, name, kind, path):
    value = mapping.get(name) if isinstance(mapping, dict) else None
    if type(value) is not kind:
        raise Damaged(f"{path}: {name!r} is missing or not of type {kind.__name__}")
    return value


def _natural(mapping, name, path):
    value = _field(mapping, name, int, path)
    if value < 0:
        raise Damaged(f"{path}: {name!r} is negative. Received: {name}={value}")
    return value


def _files(body, path):
    files = _field(body, "files", dict, path)
    # Exactly these names, so a manifest cannot refer to files outside its folder.
    if set(files) != {ARRAYS, INFO}:
        raise Damaged(f"{path}: lists files {str(sorted(files))[:100]}, expected {[ARRAYS, INFO]}")
    return {name: (_natural(about, "bytes", path), _field(about, "sha256", str, path)) for name, about in files.items()}


def _arrays(body, path):
    specs = tuple(_spec(entry, path) for entry in _field(body, "arrays", list, path))
    if len({spec.name for spec in specs}) != len(specs):
        raise Damaged(f"{path}: one array name appears twice")
    return specs


def _spec(entry, path):
    name, shape = _field(entry, "name", str, path), _field(entry, "shape", list, path)
    dtype = _field(entry, "dtype", str, path)
    if dtype not in DTYPES:
        raise Damaged(f"{path}: array {name[:100]!r} has dtype {dtype[:50]!r}, allowed: {', '.join(DTYPES)}")
    if len(shape) > 32 or not all(type(axis) is int and 0 <= axis < LONGEST_AXIS for axis in shape):
        raise Damaged(f"{path}: array {name[:100]!r} has an impossible shape {str(shape)[:100]}")
    return Spec(name, tuple(shape), dtype)


def _compare_sizes(manifest, path):
    claimed = sum(spec.nbytes for spec in manifest.arrays)
    stored, _ = manifest.files[ARRAYS]
    most = claimed + OVERHEAD * (len(manifest.arrays) + 1)
    if not claimed <= stored <= most:
        raise Damaged(f"{path}: its arrays take {claimed} bytes, but its {ARRAYS} has {stored}")
    if manifest.files[INFO][0] > plain_json.LIMIT:
        raise Damaged(f"{path}: its {INFO} is larger than {plain_json.LIMIT} bytes")
