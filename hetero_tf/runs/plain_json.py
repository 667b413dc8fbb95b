"""Strict JSON: no NaN, no infinity, no duplicate keys, bounded size."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.files import Damaged
from hetero_tf.base.typed_json import from_json

T = TypeVar("T")
LIMIT = 4 * 2**20


def dump(value: object, subject: str) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, UTF-8. The result always passes `parse`.

    Raises:
        InputError: A value is not plain JSON, too large or not finite; `subject` names it in the message.
    """
    try:
        _text_keys(value)
        data = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()
        parse(data, subject)
    except (TypeError, ValueError, RecursionError, Damaged) as error:
        raise InputError(
            f"{subject} must hold finite numbers, strings, lists and dicts only. Received: {error}"
        ) from error
    return data


def parse(data: bytes, source: object, limit: int = LIMIT) -> object:
    """Return the value of JSON bytes from an untrusted file.

    Raises:
        Damaged: Too large, nested too deeply, not UTF-8, not JSON, NaN or infinite, or a duplicate key.
    """
    if len(data) > limit:
        raise Damaged(f"{source}: has {len(data)} bytes, at most {limit} are allowed")
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates can be parsed, but neither printed nor written
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{source}: is not plain JSON: {error}") from error
    return value


def read(kind: type[T], path: Path, advice: str = "") -> T:
    """Return the content of a file as an object of a class, see `typed_json.from_json`."""
    return from_json(kind, parse(files.read_bytes(path, LIMIT), path), path, advice)


def finite(value: Any) -> Any:
    """Return the value with NumPy scalars as Python numbers and NaN or infinity as None, ready for `dump`."""
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text_keys(value):
    """Refuse keys that are not text: JSON would silently convert them, so the keys would change."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _text_keys(item)
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise TypeError(f"keys {list(value)[:3]} that are not all text")


def _constant(name):
    raise ValueError(f"{name} is not a number")


def _finite(text):
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is too large for a number")
    return float(text)


def _unique(pairs):
    if len(dict(pairs)) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return dict(pairs)
