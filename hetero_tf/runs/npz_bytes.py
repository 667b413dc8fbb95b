"""Encodes named arrays as the bytes of one npz file and decodes them, without pickle and without trusting a header."""

import io
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import numpy as np

from hetero_tf.base.constraints import Range
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged

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

    Args:
        arrays: `{name: array}` of numbers or bools.

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

    Args:
        data: Bytes of the npz file.
        specs: Expected arrays in the order of the file, from the manifest.
        path: The file, for error messages.

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
    """Describe the first difference between stored and expected arrays; None if there is none.

    Args:
        specs: `Spec`s of the stored arrays.
        expect: `{name: (shape, dtype)}` of the required arrays.
        optional: `name -> (shape, dtype)` of an array that may also be stored; None for an unknown name.
    """
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
