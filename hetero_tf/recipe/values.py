"""Checks single values of a recipe against the constraints of keys, options and layer arguments."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hetero_tf.base.constraints import SMALLEST_FLOAT, Constraint
from hetero_tf.base.errors import did_you_mean, find_nearest
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import MAX_PRINTED_ERRORS, ErrorList, InvalidValue, format_value
from hetero_tf.recipe.schema import LEVEL, Mebibytes

LONGEST_TEXT = 1000
MOST_ITEMS = 10_000
FRACTION = re.compile("([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")
MEMORY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?MiB")
_AMOUNT = Constraint("float", above=0.0, high=1e9)
_PYTHON_TYPES: dict[str, Any] = {"int": int, "pair": int, "float": (int, float), "str": str, "bool": bool}


def check_mapping(value: object, path: tuple, known: tuple[str, ...], user_plugin: str = "") -> ErrorList:
    """Return the errors of unknown keys; raise `InvalidValue` unless a value is a mapping.

    Args:
        user_plugin: Name of the plug-in of a user that defines them.
    """
    if not isinstance(value, dict):
        raise InvalidValue(path, f"must be a mapping with the keys {', '.join(known) or '(none)'}", value)
    errors, absent = ErrorList(), [name for name in known if name not in value]
    for key in value:
        if key not in known:
            hint = "; no keys are allowed here"
            if known and len(errors) < MAX_PRINTED_ERRORS:
                hint = did_you_mean(key, absent if find_nearest(key, absent) else known)
            if user_plugin:
                hint += (
                    f". Keys are the parameters that {user_plugin} defines with an annotation, such as `{key}: int` "
                    "(BUILD.md, Add a part)"
                )
            errors.append(InvalidValue((*path, key), f"unknown key {format_value(key)}{hint}", at_key=True))
    return errors


def lacks(value: dict, key: str, known: Iterable[str]) -> bool:
    """Return True if a required key is missing; an unknown key that resembles it is reported instead."""
    unknown = [other for other in value if other not in known][:MAX_PRINTED_ERRORS]
    absent = [name for name in known if name not in value]
    return key in absent and all(find_nearest(other, absent) != key for other in unknown)


def convert(value: object, constraint: Constraint, path: tuple) -> Any:
    """Convert a value for the schema (ints to floats, lists to tuples); raises `InvalidValue`."""
    if value is None and constraint.optional:
        return None
    if constraint.sizes and isinstance(value, (Width, Classes)):
        return value
    if constraint.type == "dict" or (constraint.by_level and isinstance(value, dict)):
        return _mapping(value, constraint, path)
    if constraint.type == "tuple" and isinstance(value, (list, tuple)):
        return _items(value, constraint, path)
    if constraint.type == "tuple" and constraint.single and isinstance(value, str):
        return _items([value], constraint, path)
    if constraint.type == "pair" and isinstance(value, list) and len(value) == 2:
        one = replace(constraint, type="int", optional=False)
        return tuple(convert(part, one, (*path, index)) for index, part in enumerate(value))
    if constraint.memory and isinstance(value, str) and (match := MEMORY.fullmatch(value)):
        return Mebibytes(convert(float(match[1]), _AMOUNT, path))
    if constraint.fractions and isinstance(value, str) and (match := FRACTION.fullmatch(value)):
        value = int(match[1]) / int(match[2])
    is_bool = isinstance(value, bool) and constraint.type != "bool"
    if is_bool or not isinstance(value, _PYTHON_TYPES.get(constraint.type, ())):
        raise _wrong(path, "wrong type", constraint, value)
    if constraint.choices and value not in constraint.choices:
        raise _wrong(path, "unknown value", constraint, value)
    if constraint.type == "str":
        return _text(value, constraint, path)
    return value if constraint.type == "bool" else _number(value, constraint, path)


def _wrong(path, what, constraint, value):
    near = find_nearest(value, constraint.choices) if constraint.choices and isinstance(value, str) else None
    advice = f"did you mean {near!r}? It {constraint.allowed()}" if near else constraint.allowed()
    return InvalidValue(path, f"{what}; {advice}", value)


def _number(value, constraint, path):
    low, high = constraint.bounds()
    if (low is not None and value < low) or (constraint.above is not None and value <= constraint.above):
        raise _wrong(path, "too small", constraint, value)
    if value > high or (constraint.below is not None and value >= constraint.below):
        raise _wrong(path, "too large", constraint, value)
    if constraint.odd and value % 2 == 0:
        raise _wrong(path, "even", constraint, value)
    if constraint.type == "float" and 0 < abs(value) < SMALLEST_FLOAT:
        what = f"too close to 0 for float32; its absolute value must be at least {SMALLEST_FLOAT:g}"
        raise InvalidValue(path, f"{what}", value)
    return float(value) if constraint.type == "float" else value


def _text(value, constraint, path):
    if constraint.pattern and not re.fullmatch(constraint.pattern, value):
        raise _wrong(path, "not allowed", constraint, value)
    if len(value) > LONGEST_TEXT or any(ord(letter) < 32 for letter in value):
        raise InvalidValue(path, f"not allowed; must be one line of at most {LONGEST_TEXT} characters", value)
    return value


def _items(value, constraint, path):
    if len(value) > MOST_ITEMS:
        raise InvalidValue(path, f"too long; at most {MOST_ITEMS} items are allowed. Received: {len(value)} items")
    if constraint.numbered:
        value = [str(part) if type(part) is int else part for part in value]
    errors, items = ErrorList(), []
    for index, part in enumerate(value):
        with errors:
            of_number = Constraint("int" if type(part) is int else "float")
            items.append(convert(part, constraint.item or of_number, (*path, index)))
    errors.raise_all()
    return tuple(items)


def _mapping(value, constraint, path):
    item = constraint.item or replace(constraint, by_level=False)
    if constraint.named and not isinstance(value, dict):
        raise _wrong(path, "wrong type", constraint, value)
    if not isinstance(value, dict) or (constraint.item and constraint.low and not value):
        names = f", or one of {', '.join(constraint.choices)}" if constraint.choices else ""
        raise InvalidValue(path, f"must be a mapping of level to {item.noun()}, such as {{a: 1}}{names}", value)
    errors, entries = ErrorList(), {}
    for name, entry in value.items():
        with errors:
            if constraint.named:
                convert(name, Constraint("str"), path)
            elif not re.fullmatch(LEVEL, name):
                text = f"not a level; its name may contain only letters. Received: {format_value(name)}"
                raise InvalidValue((*path, name), text, at_key=True)
            entries[name] = convert(entry, item, (*path, name))
    errors.raise_all()
    return entries
