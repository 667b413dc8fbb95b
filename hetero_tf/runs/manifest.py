"""The manifest of a checkpoint: size and sha256 of each file; name, shape and dtype of each array."""

import hashlib
import io
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import numpy as np

from hetero_tf.base import typed_json
from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.base.typed_json import Natural, from_json

DType = Literal["|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]
DTYPES = get_args(DType)
Axis = Annotated[int, Range(low=0, high=2**40)]
# Upper bound in bytes of the zip and npy headers of one array.
OVERHEAD = 1024


@dataclass(frozen=True)
class Spec:
    """One stored array: its name (any text, '/' included), shape and NumPy dtype string such as "<f4"."""

    name: str
    shape: tuple[Axis, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Size in bytes, an exact Python integer."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self):
        return f"{np.dtype(self.dtype).name}{list(self.shape)}"


def encode(arrays: dict[str, np.ndarray]) -> tuple[memoryview, tuple[Spec, ...]]:
    """Encode arrays by position. Their names are stored in the manifest, so no name is ever used as a path.

    Returns:
        (bytes-like npz, tuple of `Spec` in the order of the file).

    Raises:
        InputError: A name is not text, or a dtype cannot be stored (objects, strings, records, big-endian).
    """
    values = [np.asarray(value, order="C") for value in arrays.values()]
    specs = tuple(Spec(name, value.shape, cast(DType, value.dtype.str)) for name, value in zip(arrays, values))
    for spec in specs:
        if not isinstance(spec.name, str):
            raise InputError(f"array names must be text. Received: name={spec.name!r}")
        if spec.dtype not in DTYPES:
            raise InputError(f"array {spec.name!r} must hold numbers or bools. Received: dtype={spec.dtype}")
    file = io.BytesIO()
    np.savez(file, *values)
    return file.getbuffer(), specs


def decode(data: bytes, specs: Sequence[Spec], path: Path) -> dict[str, np.ndarray]:
    """Return the read-only arrays of npz bytes. Each header is compared with its spec before memory is allocated.

    Raises:
        Damaged: The file differs from the specs.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if [member.filename for member in members] != [f"arr_{i}.npy" for i in range(len(specs))]:
                raise ValueError(f"its members are not the {len(specs)} arrays of the manifest")
            return {spec.name: _array(archive, member, spec) for member, spec in zip(members, specs)}
    except MemoryError:
        raise
    # Zip and npy readers raise many types for crafted bytes (struct.error, SyntaxError, NotImplementedError...).
    except Exception as error:
        raise Damaged(f"{path}: {error}") from error


def _array(archive, member, spec):
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > spec.nbytes + OVERHEAD:
        raise ValueError(f"array {spec.name!r} is compressed or too large")
    with archive.open(member) as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"array {spec.name!r} has an unknown npy version")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        # Compare strings: a dtype with objects or fields never equals one of `DTYPES`.
        if (shape, dtype.str, fortran and len(shape) > 1) != (spec.shape, spec.dtype, False):
            raise ValueError(f"array {spec.name!r} is {dtype.str}{list(shape)}, the manifest says {spec}")
        content = file.read()
    if len(content) != spec.nbytes:
        raise ValueError(f"array {spec.name!r} has {len(content)} bytes, expected {spec.nbytes}")
    return np.ndarray(spec.shape, spec.dtype, buffer=content)


def no_optional_arrays(name: str) -> None:
    """The default of `optional` in `mismatch`: no further arrays are allowed."""


def mismatch(specs: Sequence[Spec], expect: dict[str, tuple], optional: Callable = no_optional_arrays) -> str | None:
    """Describe the first difference between stored and expected arrays; None if there is none."""
    stored = {spec.name: spec for spec in specs}
    for name, expected in (expect | {name: optional(name) for name in stored if name not in expect}).items():
        if expected is None:
            return f"array {name!r} is not expected"
        shape, dtype = expected
        expected_spec = Spec(name, tuple(shape), np.dtype(dtype).str)
        if name not in stored:
            return f"array {name!r} is missing, expected {expected_spec}"
        if stored[name] != expected_spec:
            return f"array {name!r} is {stored[name]}, expected {expected_spec}"
    return None


def require(
    specs: Sequence[Spec], expect: dict[str, tuple], folder: Path, optional: Callable = no_optional_arrays
) -> None:
    """Raise InputError with the first `mismatch`; `folder` is the source of the arrays."""
    difference = mismatch(specs, expect, optional)
    if difference:
        raise InputError(
            f"{folder}: {difference}; another recipe saved it: continue with that recipe, or choose a new run folder"
        )


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
        if self.files[INFO].bytes > typed_json.LIMIT:
            raise ValueError(f"its {INFO} is larger than {typed_json.LIMIT} bytes")


@dataclass(frozen=True)
class _Document:
    contents: dict[str, Any]
    sha256: str


def make(round_number: int, contents: dict[str, bytes | memoryview], specs: Sequence[Spec]) -> bytes:
    """Return the manifest as bytes."""
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
    return typed_json.dump({"contents": body, "sha256": _digest(body)}, "the manifest")


def parse(data: bytes, path: Path) -> Manifest:
    """Return the `Manifest` of untrusted bytes after all checks.

    Raises:
        Damaged: Its checksum or a value is wrong. No memory is allocated for sizes that it claims.
    """
    document = from_json(_Document, typed_json.parse(data, path), path)
    if document.sha256 != _digest(document.contents):
        raise Damaged(f"{path}: its checksum does not match its contents")
    return from_json(Manifest, {**document.contents, "digest": document.sha256}, path)


def verify(data: bytes, name: str, manifest: Manifest, path: Path) -> None:
    """Compare the bytes of one file with the manifest; raise Damaged."""
    verify_size(len(data), name, manifest, path)
    if hashlib.sha256(data).hexdigest() != manifest.files[name].sha256:
        raise Damaged(f"{path}: its sha256 differs from the manifest's")


def verify_size(size: int, name: str, manifest: Manifest, path: Path) -> None:
    """Compare the size of one file with the manifest; raise Damaged."""
    if size != manifest.files[name].bytes:
        raise Damaged(f"{path}: has {size} bytes, the manifest says {manifest.files[name].bytes}")


def _digest(body):
    return hashlib.sha256(typed_json.dump(body, "the manifest")).hexdigest()
