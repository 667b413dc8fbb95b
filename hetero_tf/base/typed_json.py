"""Reads and writes strict JSON, without NaN, infinity and duplicate keys and of bounded size, and reads dataclasses.

The error about a wrong value is one sentence with the file and the key. A field has one of the types int, float, str,
bool, None, Any, `Literal`, `tuple`, `list`, `dict[str, ...]`, another dataclass, or a union of these; `Annotated` adds
a `Range` or a `Text` of `constraints`. A list may replace a dataclass: it has the values of the fields in order.
Unknown keys are ignored. `__post_init__` may raise `ValueError` to refuse a combination of values.
"""

import contextlib
import functools
import json
import math
import re
from dataclasses import MISSING, fields, is_dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from hetero_tf.base import files
from hetero_tf.base.constraints import Range, Text
from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.files import Damaged

T = TypeVar("T")
# Larger whole numbers are never written.
LARGEST_INT = 2**63
LONGEST_RECEIVED = 60
_NOUNS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", NoneType: "null"}
_BOUNDS = {"low": ("from", ge), "above": ("above", gt), "high": ("to", le), "below": ("below", lt)}
Natural = Annotated[int, Range(low=0)]
NonNegative = Annotated[float, Range(low=0)]


class _InvalidJson(ValueError):
    """A value has another form; the message is a sentence without the file."""


def from_json(kind: type[T], value: Any, source: object, advice: str = "") -> T:
    """Return a value of JSON as an object of a class, after a check of all its fields.

    Args:
        kind: The dataclass, or another type that a field may have.
        advice: End of error messages.

    Raises:
        Damaged: A key is missing, or a value has a wrong type or is out of range.
    """
    try:
        return _convert(kind, value, "")
    except _InvalidJson as error:
        raise Damaged(f"{source}: {error}{advice}") from error


def _convert(kind, value, path):
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _convert_object(kind, value, path)
    if origin is Annotated:
        return _check_limits(_convert(arguments[0], value, path), arguments[1:], value, path)
    if origin in (Union, UnionType):
        return _convert_union(arguments, value, path)
    if origin is Literal:
        if not any(type(value) is type(choice) and value == choice for choice in arguments):
            raise _wrong(f"must be {', '.join(map(repr, arguments))}", value, path)
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong("must be a mapping", value, path)
        return {name: _convert(arguments[1], item, _join(path, name)) for name, item in value.items()}
    if origin in (tuple, list):
        return origin(_convert_items(arguments, value, path))
    if kind is float and type(value) is int and abs(value) < LARGEST_INT:
        return float(value)
    if type(value) is not kind:
        raise _wrong(f"must be {_NOUNS[kind]}", value, path)
    is_too_large = kind is int and abs(value) >= LARGEST_INT or kind is float and not math.isfinite(value)
    if is_too_large:
        raise _wrong(f"must be {_NOUNS[kind]} of at most 64 bits", value, path)
    return value


def _convert_object(kind, value, path):
    names = [field.name for field in fields(kind)]
    if isinstance(value, list) and len(value) <= len(names):
        value = dict(zip(names, value))
    if not isinstance(value, dict):
        raise _wrong("must be a mapping", value, path)
    types, values = _type_hints(kind), {}
    for field in fields(kind):
        if field.name in value:
            values[field.name] = _convert(types[field.name], value[field.name], _join(path, field.name))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _InvalidJson(f"{_join(path, field.name)} is missing")
    try:
        return kind(**values)
    except ValueError as error:
        raise _InvalidJson(f"{path}: {error}" if path else str(error)) from error


def _convert_union(kinds, value, path):
    if value is None and NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not NoneType)
    if type(value) in kinds:
        return _convert(type(value), value, path)
    for kind in others:
        with contextlib.suppress(_InvalidJson):
            return _convert(kind, value, path)
    return _convert(last, value, path)


def _convert_items(kinds, value, path):
    if not isinstance(value, list):
        raise _wrong("must be a list", value, path)
    if kinds[-1] is not Ellipsis and len(kinds) > 1 and len(kinds) != len(value):
        raise _wrong(f"must be a list of {len(kinds)} items", value, path)
    kinds = kinds if kinds[-1] is not Ellipsis and len(kinds) > 1 else kinds[:1] * len(value)
    return [_convert(kind, item, f"{path}[{index}]") for index, (kind, item) in enumerate(zip(kinds, value))]


def _check_limits(converted, limits, value, path):
    for limit in limits:
        if isinstance(limit, Text) and limit.pattern and not re.fullmatch(limit.pattern, converted):
            raise _wrong(f"must be text like {limit.pattern}", value, path)
        if isinstance(limit, Range) and converted is not None:
            bounds = [(*each, bound) for name, each in _BOUNDS.items() if (bound := getattr(limit, name)) is not None]
            if not all(compare(converted, bound) for _, compare, bound in bounds):
                text = " ".join(f"{word} {bound:g}" for word, _, bound in bounds)
                raise _wrong(f"must be a number {text}", value, path)
    return converted


def _wrong(expectation, value, path):
    name = path or "the content"
    return _InvalidJson(f"{name} {expectation}. Received: {shorten_repr(value, LONGEST_RECEIVED)}")


def _join(path, name):
    name = name if len(name) <= LONGEST_RECEIVED and name.isprintable() else shorten_repr(name, LONGEST_RECEIVED)
    return f"{path}.{name}" if path else name


@functools.cache
def _type_hints(kind):
    return get_type_hints(kind, include_extras=True)


LIMIT = 4 * 2**20


def dump(value: object, subject: str) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, UTF-8. The result always passes `parse`.

    Raises:
        InputError: A value is not plain JSON, too large or not finite; `subject` names it in the message.
    """
    try:
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
    """Return the content of a file as an object of a class, see `from_json`."""
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
