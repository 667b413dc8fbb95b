"""Builds the schema dataclasses from plain values, and checks keys, types, ranges and plug-ins."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import Option, Plugin, inline_plugin, keys
from hetero_tf.base.errors import did_you_mean
from hetero_tf.recipe.layers import build_model
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import InvalidValue, format_value
from hetero_tf.recipe.schema import LEVEL, MIX, SCENARIOS, Levels, Recipe
from hetero_tf.recipe.values import check_mapping, convert


def build_recipe(value: dict) -> Recipe:
    """Build the `Recipe` of a plain value, without the rules between keys.

    Args:
        value: Mapping of the keys of a recipe to plain values.

    Raises:
        InvalidValue: A key, a value or the name of a plug-in is invalid.
    """
    recipe = _section(Recipe, value, ())
    recipe = dataclasses.replace(recipe, client=dataclasses.replace(recipe.client, loss=recipe.loss))
    if recipe.levels.rounding == "up":
        return recipe
    return dataclasses.replace(recipe, model=recipe.model.rounded_down())


def _section(cls, value, path):
    """Build a section; its plug-in, if it has one, shares the mapping with its keys."""
    plugin, values = inline_plugin(cls), {}
    if plugin is None:
        check_mapping(value, path, tuple(keys(cls)))
    else:
        value = {"name": value} if isinstance(value, str) else value
        values[plugin.name] = _plugin(plugin, value, path, keys(cls))
    for name, option in keys(cls).items():
        if option.required and name not in value:
            raise InvalidValue(path, f"the key {name!r} is missing ({option.doc})")
    for name, option in keys(cls).items():
        # A default plug-in has options too, with their defaults.
        if name in value or isinstance(option.default, Plugin):
            values[name] = _value(option, value.get(name, option.default), (*path, name))
    return cls(**values)


def _value(option, value, path):
    if option.is_section:
        section = option.constraint.section
        return _BUILDERS[section](value, path) if section in _BUILDERS else _section(section, value, path)
    if option.is_plugin:
        return None if value is None and option.constraint.optional else _plugin(option, value, path)
    return convert(value, option.constraint, path)


def _plugin(key: Option, value: Any, path: tuple, common: Iterable[str] = ()) -> Plugin:
    """Build a `Plugin` from its name or from `{name: ..., options}`; missing options get their defaults.

    Args:
        key: Key that selects the plug-in; options without a name belong to its default.
        value: Value in the recipe; a `Plugin` if it is a default of the schema.
        path: Its path in the recipe.
        common: Other keys that are allowed next to the options.

    Raises:
        InvalidValue: The plug-in or an option is unknown, or the value of an option is invalid.
    """
    kind, default = key.constraint.kind, key.default
    known = registry.names(kind)
    if isinstance(value, (str, Plugin)):
        value = {"name": value} if isinstance(value, str) else {"name": value.name, **value.options}
    if not isinstance(value, dict) or not ("name" in value or isinstance(default, Plugin)):
        raise InvalidValue(
            path,
            f"must be a name or {{name: ..., options}}; known: {', '.join(known)}. Received: {format_value(value)}",
        )
    value = value if "name" in value else {"name": default.name, **value}
    name = value["name"]
    if name not in known:
        raise InvalidValue((*path, "name"), f"unknown name {format_value(name)}{did_you_mean(name, known)}")
    options = registry.options(kind, name)
    check_mapping(value, path, ("name", *common, *options), name if registry.is_registered(kind, name) else "")
    for option in options.values():
        if option.required and option.name not in value:
            raise InvalidValue(path, f"the option {option.name!r} of {name} is missing ({option.doc or option.name})")
    values = {key: option.default for key, option in options.items()}
    in_recipe = {key: convert(value[key], options[key].constraint, (*path, key)) for key in options if key in value}
    return Plugin(name, values | in_recipe)


def _levels(value, path):
    """Build the `Levels` from a mix such as `a1-e9`, and from budgets that are named by a scenario."""
    if isinstance(value, dict) and "mix" in value:
        value = {**value, "mix": _mix(value["mix"], (*path, "mix"))}
        budgets = value.get("budgets")
        if isinstance(budgets, str) and budgets in SCENARIOS:
            value["budgets"] = _scenario(budgets, value["mix"], (*path, "budgets"))
    levels = _section(Levels, value, path)
    shares = {name: int(share) if share.is_integer() else share for name, share in levels.mix.items()}
    return dataclasses.replace(levels, mix=shares)


def _scenario(name, mix, path):
    """Return the budgets of a scenario, which apply to the levels of the mix in order."""
    budgets = SCENARIOS[name]
    if len(mix) != len(budgets):
        raise InvalidValue(
            path,
            f"{name} defines {len(budgets)} budgets, so the mix must have {len(budgets)} levels. Received: {len(mix)}",
        )
    return dict(zip(mix, budgets))


def _mix(value, path):
    """Return `a1-e9`, `a-e` or `{a: 1, e: 9}` as a mapping of level to share."""
    if isinstance(value, dict) and value:
        return value
    if not isinstance(value, str) or not re.fullmatch(MIX, value):
        raise InvalidValue(
            path, f"not a mix of levels; write it as a1-e9, a-e or {{a: 1, e: 9}}. Received: {format_value(value)}"
        )
    shares: dict[str, int] = {}
    for name, share in re.findall(f"({LEVEL})([0-9]*)", value):
        if name in shares:
            raise InvalidValue(
                path, f"the level {name!r} occurs twice; list each level once. Received: {format_value(value)}"
            )
        shares[name] = int(share or 1)
    return shares


_BUILDERS = {Levels: _levels, Model: build_model}
