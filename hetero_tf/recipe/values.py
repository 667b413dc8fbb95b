"""Checks single values of a recipe against the constraints of keys, options and layer arguments."""

import re
from dataclasses import replace
from typing import Any

from hetero_tf.base.constraints import SMALLEST_FLOAT, Constraint
from hetero_tf.base.errors import find_nearest
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import InvalidValue, format_value

LONGEST_TEXT = 1000
MOST_ITEMS = 10_000


def convert(value: object, constraint: Constraint, path: tuple) -> Any:
    """Convert a value for the schema (ints to floats, lists to tuples); raises `InvalidValue`."""
    if value is None and constraint.optional:
        return None
    if constraint.sizes and isinstance(value, (Width, Classes)):
        return value
    if constraint.type == "tuple" and isinstance(value, (list, tuple)):
        return _items(value, constraint, path)
    if constraint.type == "pair" and isinstance(value, list) and len(value) == 2:
        one = replace(constraint, type="int", optional=False)
        return tuple(convert(part, one, (*path, index)) for index, part in enumerate(value))
    fits: dict[str, Any] = {"int": int, "pair": int, "float": (int, float), "str": str, "bool": bool}
    if not isinstance(value, fits.get(constraint.type, ())) or (isinstance(value, bool) and constraint.type != "bool"):
        raise _wrong(path, "wrong type", constraint, value)
    if constraint.choices and value not in constraint.choices:
        raise _wrong(path, "unknown value", constraint, value)
    if constraint.type == "str":
        return _text(value, constraint, path)
    return value if constraint.type == "bool" else _number(value, constraint, path)


def _wrong(path, what, constraint, value):
    near = find_nearest(value, constraint.choices) if constraint.choices and isinstance(value, str) else None
    advice = f"did you mean {near!r}? It {constraint.allowed()}" if near else constraint.allowed()
    return InvalidValue(path, f"{what}; {advice}. Received: {format_value(value)}")


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
        raise InvalidValue(path, f"{what}. Received: {format_value(value)}")
    return float(value) if constraint.type == "float" else value


def _text(value, constraint, path):
    if constraint.pattern and not re.fullmatch(constraint.pattern, value):
        raise _wrong(path, "not allowed", constraint, value)
    if len(value) > LONGEST_TEXT or any(ord(letter) < 32 for letter in value):
        raise InvalidValue(
            path, f"not allowed; must be one line of at most {LONGEST_TEXT} characters. Received: {format_value(value)}"
        )
    return value


def _items(value, constraint, path):
    if len(value) > MOST_ITEMS:
        raise InvalidValue(path, f"too long; at most {MOST_ITEMS} items are allowed. Received: {len(value)} items")
    return tuple(convert(part, constraint.item or _any_number(part), (*path, i)) for i, part in enumerate(value))


def _any_number(value):
    whole = isinstance(value, int) and not isinstance(value, bool)
    return Constraint("int" if whole else "float")
