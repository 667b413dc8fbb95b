"""Builds the schema dataclasses from plain values, and checks keys, types, ranges and plug-ins."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import (
    Constraint,
    Plugin,
    constraint_of,
    default_of,
    inline_plugin_field,
    is_by_level,
    is_plugin,
    keys,
)
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.layers import build_model, check_annotated, check_mapping, unit_names
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import LEVEL, SCENARIOS, Client, Levels, Megabytes, Recipe
from hetero_tf.recipe.values import convert

_WIDTH = Constraint("float", above=0.0, high=1.0)
_BUDGET = Constraint("float", above=0.0, high=100.0)
_ENTRIES = Constraint("float", above=0.0, high=1.0)
_COUNT = Constraint("int", low=1, high=1000)
_SHARES = Constraint("float", above=0.0, high=1e6)
_AMOUNT = Constraint("float", above=0.0, high=1e9)
_SECONDS = Constraint("float", above=0.0, high=1e6)
_EPOCHS = constraint_of(keys(Client)["epochs"])


def build_recipe(value: dict) -> Recipe:
    """Build the `Recipe` of a plain value, without the rules between keys.

    Args:
        value: Mapping of the keys of a recipe to plain values.

    Raises:
        InvalidValue: A key, a value or the name of a plug-in is invalid.
    """
    recipe = _section(Recipe, value, ())
    if recipe.levels.rounding == "up":
        return recipe
    return dataclasses.replace(recipe, model=recipe.model.rounded_down())


def _section(cls, value, path):
    check_mapping(value, path, tuple(keys(cls)))
    return cls(**_values(cls, value, path))


def _section_with_plugin(cls, value, path):
    """Build a section that names a plug-in and mixes the plug-in's options with its own keys."""
    plugin_field, value = inline_plugin_field(cls), {"name": value} if isinstance(value, str) else value
    selected = plugin(plugin_field.metadata["kind"], value, path, plugin_field.default, common=keys(cls))
    return cls(**{plugin_field.name: selected, **_values(cls, value, path)})


def _values(cls, value, path):
    """Return the values of a section's keys by name."""
    for name, field in keys(cls).items():
        if field.metadata["required"] and name not in value:
            raise InvalidValue(path, f"the key {name!r} is missing ({field.metadata['doc'] or name})")
    return {name: _field(field, value, (*path, name)) for name, field in keys(cls).items()}


def _field(field, values, path):
    if is_plugin(field):
        value, default = values.get(field.name, field.default), field.default or dataclasses.MISSING
        if value is None and field.default is None:
            return None
        return plugin(field.metadata["kind"], value, path, default)
    if dataclasses.is_dataclass(field.type):
        section = _section if inline_plugin_field(field.type) is None else _section_with_plugin
        builder = _SPECIAL.get(field.type, lambda *args: section(field.type, *args))
        return builder(values.get(field.name, {}), path)
    if field.name not in values:
        return default_of(field)
    special, value = _SPECIAL_KEYS.get(path[-2:]), values[field.name]
    if special is not None and (isinstance(value, dict) or not is_by_level(field)):
        return special(value, path)
    return convert(value, constraint_of(field), path)


def plugin(
    kind: str, value: object, path: tuple, default: Any = dataclasses.MISSING, common: Iterable[str] = ()
) -> Plugin:
    """Build a `Plugin` from its name or from `{name: ..., options}`; missing options get their defaults.

    Args:
        kind: Kind of the plug-in.
        value: Value in the recipe; a `Plugin` if it is a default of the schema.
        path: Its path in the recipe.
        default: The `Plugin` that options without a name belong to.
        common: Other keys that are allowed next to the options.

    Raises:
        InvalidValue: The plug-in or an option is unknown, or the value of an option is invalid.
    """
    if isinstance(value, Plugin):
        value = {"name": value.name, **value.options}
    value = {"name": value} if isinstance(value, str) else value
    if not isinstance(value, dict) or ("name" not in value and default is dataclasses.MISSING):
        raise InvalidValue(
            path,
            f"must be a name or {{name: ..., options}}; known: {', '.join(registry.names(kind))}. "
            f"Received: {format_value(value)}",
        )
    value = value if "name" in value else {"name": default.name, **value}
    name = value["name"]
    if name not in registry.names(kind):
        raise InvalidValue(
            (*path, "name"), f"unknown name {format_value(name)}{did_you_mean(name, registry.names(kind))}"
        )
    options = registry.options(kind, name)
    check_annotated(kind, name, value, path)
    check_mapping(value, path, ("name", *common, *options))
    for option in options.values():
        if option.required and option.name not in value:
            raise InvalidValue(path, f"the option {option.name!r} of {name} is missing ({option.doc or option.name})")
    return Plugin(name, {option.name: _option(option, value, path) for option in options.values()})


def _option(option, value, path):
    if option.name not in value:
        return option.default
    return convert(value[option.name], option.constraint, (*path, option.name))


def _by_level(what, example, read_one, empty=True):
    """Return a reader of a mapping by level that reads each value with `read_one(value, path)`."""

    def read(value, path):
        if not isinstance(value, dict) or not (value or empty):
            raise InvalidValue(
                path, f"must be a mapping of level to {what}, such as {example}. Received: {format_value(value)}"
            )
        for name in value:
            if not re.fullmatch(LEVEL, name):
                raise InvalidValue(
                    (*path, name),
                    f"not a level; its name may contain only letters. Received: {format_value(name)}",
                    True,
                )
        return {name: read_one(entry, (*path, name)) for name, entry in value.items()}

    return read


def _each(constraint):
    return lambda value, path: convert(value, constraint, path)


def _fraction(constraint):
    """Return a reader of a number or a fraction such as 1/6."""

    def read(value, path):
        match = re.fullmatch("([1-9][0-9]{0,3})/([1-9][0-9]{0,3})", value) if isinstance(value, str) else None
        return convert(int(match[1]) / int(match[2]) if match else value, constraint, path)

    return read


def _budgets(value, path):
    """Read `{a: 1, d: 20 MB}`; the name of a scenario is resolved later, when the levels of the mix are known."""
    if isinstance(value, str) and value in SCENARIOS:
        return value
    return _BUDGETS(value, path)


def _levels(value, path):
    """Build the `Levels`; the budgets of a scenario apply to the levels of the mix in order."""
    levels = _section(Levels, value, path)
    if not isinstance(levels.budgets, str):
        return levels
    shares = SCENARIOS[levels.budgets]
    if len(levels.names) != len(shares):
        raise InvalidValue(
            (*path, "budgets"),
            f"{levels.budgets} defines {len(shares)} budgets, so the mix must have {len(shares)} "
            f"levels. Received: {len(levels.names)}",
        )
    return dataclasses.replace(levels, budgets=dict(zip(levels.names, shares)))


def _mix(value, path):
    """Read `a1-e9`, `a-e` or `{a: 1, e: 9}` as (level, share) pairs."""
    if isinstance(value, dict) and value:
        return tuple((name, _share(share, (*path, name))) for name, share in value.items())
    entries = value.split("-") if isinstance(value, str) else ()
    matches = [re.fullmatch(f"({LEVEL})([0-9]{{0,6}})", entry) for entry in entries]
    if not matches or None in matches:
        raise InvalidValue(
            path, f"not a mix of levels; write it as a1-e9, a-e or {{a: 1, e: 9}}. Received: {format_value(value)}"
        )
    pairs = tuple((match.group(1), _share(int(match.group(2) or 1), path)) for match in matches)
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValue(
                path, f"the level {name!r} occurs twice; list each level once. Received: {format_value(value)}"
            )
    return pairs


def _share(value, path):
    share = convert(value, _SHARES, path)
    return int(share) if share == int(share) else share


def _budget(value, path):
    """Read a share, or `20 MB`."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?MB", value) if isinstance(value, str) else None
    if match:
        return Megabytes(convert(float(match[1]), _AMOUNT, path))
    return _fraction(_BUDGET)(value, path)


_BUDGETS = _by_level("budget", "{a: 1, b: 1/6, c: 20 MB}, or one of " + ", ".join(SCENARIOS), _budget)
_SPECIAL = {Levels: _levels, Model: build_model}
_SPECIAL_KEYS = {
    ("round", "personal"): unit_names,
    ("fine_tune", "units"): unit_names,
    ("levels", "mix"): _mix,
    ("levels", "widths"): _by_level("width", "{a: 1, c: 1/3, e: 0.0625}", _fraction(_WIDTH), empty=False),
    ("levels", "depths"): _by_level("depth", "{a: 4, d: 1}", _each(_COUNT)),
    ("levels", "members"): _by_level("members", "{a: 8, d: 1}", _each(_COUNT)),
    ("levels", "budgets"): _budgets,
    ("levels", "entries"): _by_level("share of entries", "{a: 1, e: 1/16}", _fraction(_ENTRIES)),
    ("client", "epochs"): _by_level("epochs", "{a: 5, d: 1}", _each(_EPOCHS), empty=False),
    ("availability", "seconds_per_step"): _by_level("seconds", "{a: 0.1, e: 0.02}", _each(_SECONDS)),
}
