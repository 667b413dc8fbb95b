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
from hetero_tf.recipe.nodes import ErrorList, InvalidValue, format_value
from hetero_tf.recipe.schema import LEVEL, MIX, SCENARIOS, Device, Fleet, Levels, Recipe
from hetero_tf.recipe.values import check_mapping, convert, lacks


def build_recipe(value: dict) -> Recipe:
    """Build the `Recipe` of a plain value, without the rules between keys.

    Args:
        value: Mapping of the keys of a recipe to plain values.

    Raises:
        InvalidValue, InvalidValues: Keys, values or names of plug-ins are invalid.
    """
    recipe = _section(Recipe, value, ())
    recipe = dataclasses.replace(recipe, client=dataclasses.replace(recipe.client, loss=recipe.loss))
    if recipe.levels.rounding == "up":
        return recipe
    return dataclasses.replace(recipe, model=recipe.model.rounded_down())


def _section(cls, value, path):
    """Build a section; its plug-in, if it has one, shares the mapping with its keys."""
    plugin, options, values, errors = inline_plugin(cls), keys(cls), {}, ErrorList()
    if plugin is None:
        errors = check_mapping(value, path, tuple(options))
    else:
        value = {"name": value} if isinstance(value, str) else value
        with errors:
            values[plugin.name] = _plugin(plugin, value, path, options)
    for name, option in options.items() if isinstance(value, dict) else ():
        with errors:
            if option.required and lacks(value, name, options):
                raise InvalidValue(path, f"the key {name!r} is missing ({option.doc}){_required_keys(option)}")
            # A default plug-in has options too, with their defaults.
            if name in value or isinstance(option.default, Plugin):
                values[name] = _value(option, value.get(name, option.default), (*path, name))
    errors.raise_all()
    return cls(**values)


def _required_keys(option):
    """Return the end of a sentence with the keys that a section needs."""
    options = keys(option.constraint.section).items() if option.is_section else ()
    required = [key for key, other in options if other.required]
    return f"; it needs {' and '.join(required)}" if required else ""


def _value(option, value, path):
    if value is None and option.is_section and option.constraint.optional:
        return None
    if option.is_section:
        section = option.constraint.section
        return _BUILDERS[section](value, path) if section in _BUILDERS else _section(section, value, path)
    if option.is_plugin:
        return None if value is None and option.constraint.optional else _plugin(option, value, path)
    return convert(value, option.constraint, path)


def _plugin(selector: Option, value: Any, path: tuple, common: Iterable[str] = ()) -> Plugin:
    """Build a `Plugin` from its name or from `{name: ..., options}`; missing options get their defaults.

    Args:
        selector: Key that selects the plug-in; options without a name belong to its default.
        value: Value in the recipe; a `Plugin` if it is a default of the schema.
        common: Other keys that are allowed next to the options.

    Raises:
        InvalidValue, InvalidValues: The plug-in or options are unknown, or values of options are invalid.
    """
    kind, default = selector.constraint.kind, selector.default
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
    user_plugin = name if registry.is_registered(kind, name) else ""
    errors, values = check_mapping(value, path, ("name", *common, *options), user_plugin), {}
    for key, option in options.items():
        with errors:
            if option.required and lacks(value, key, options):
                raise InvalidValue(path, f"the option {key!r} of {name} is missing ({option.doc or key})")
            values[key] = convert(value[key], option.constraint, (*path, key)) if key in value else option.default
    errors.raise_all()
    return Plugin(name, values)


def _levels(value, path):
    """Build the `Levels` from a mix such as `a1-e9`, and from budgets that are named by a scenario."""
    errors = ErrorList()
    if isinstance(value, dict) and "mix" in value:
        # Valid values replace invalid ones, so that the other keys are checked too.
        value, mix, budgets = {**value, "mix": {"a": 1}}, value["mix"], value.get("budgets")
        with errors:
            value["mix"] = _mix(mix, (*path, "mix"))
        if isinstance(budgets, str) and budgets in SCENARIOS:
            value["budgets"] = {}
            with errors:
                value["budgets"] = _scenario(budgets, value["mix"], (*path, "budgets"))
    with errors:
        levels = _section(Levels, value, path)
    errors.raise_all()
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


def _fleet(value, path):
    """Build the `Fleet` with its classes of devices."""
    errors, devices = ErrorList(), {}
    if isinstance(value, dict) and isinstance(value.get("devices"), dict):
        for name, device in value["devices"].items():
            with errors:
                devices[name] = _section(Device, device, (*path, "devices", name))
        value = {**value, "devices": {}}
    with errors:
        fleet = _section(Fleet, value, path)
    errors.raise_all()
    return dataclasses.replace(fleet, devices=devices)


_BUILDERS = {Fleet: _fleet, Levels: _levels, Model: build_model}
