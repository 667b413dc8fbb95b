"""JSON Schema (draft 7) of recipes, from the constraints by which recipes are checked, for completion in editors.

An editor resolves `!w n` to a number, `!setting name` to a text and `!classes` to null; the schema allows these where a
layer argument may be one of them. Rules between keys are left to the program.
"""

import dataclasses
from dataclasses import Field
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import (
    Constraint,
    constraint_of,
    default_of,
    inline_plugin_field,
    is_by_level,
    is_plugin,
    keys,
)
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.schema import LEVEL, SCENARIOS, Recipe

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
# A share may be a fraction, and a budget an amount of memory.
_LEVEL_VALUE = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^([0-9]+/[0-9]+|[0-9.]+ ?MB)$"}]}
_LAYER = {"$ref": "#/definitions/layer"}
_TEXTS = {"type": "array", "items": {"type": ["string", "integer"]}}


def recipe_schema() -> dict:
    """Builds the schema, with the plug-ins that are registered now, ready for JSON."""
    schema = _section(Recipe)
    schema["properties"]["base"] = {"type": "string", "description": "another recipe, which this one changes"}
    return schema | {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "hetero_tf recipe",
        # `round.clients: 5` changes one key of the base.
        "patternProperties": {r"^[a-z_]+[.\[].*$": {"description": "one key of the base, by its path"}},
        "if": {"not": {"required": ["base"]}},
        "then": _required(Recipe),
        "definitions": {"layer": _layer(), "model": _model()},
    }


def _required(cls: Any) -> dict:
    """Schema of the keys that a recipe without a base must have, in nested sections too."""
    sections = {
        name: _required(field.type)
        for name, field in keys(cls).items()
        if dataclasses.is_dataclass(field.type) and field.type is not Model and not is_plugin(field)
    }
    required = [name for name, field in keys(cls).items() if field.metadata["required"]]
    return {
        "required": required,
        "properties": {name: {"if": {"type": "object"}, "then": part} for name, part in sections.items()},
    }


def _section(cls: Any) -> dict:
    """Schema of a mapping of keys; where a plug-in is named beside them, also of its options, or of its name alone."""
    properties = {name: _key(name, field) | {"description": field.metadata["doc"]} for name, field in keys(cls).items()}
    beside = inline_plugin_field(cls)
    if beside is None:
        return {"type": "object", "properties": properties, "additionalProperties": False}
    return _plugin(beside.metadata["kind"], False, properties)


def _key(name: str, field: Field) -> dict:
    if field.type is Model:
        return {"$ref": "#/definitions/model"}
    if is_plugin(field):
        return _plugin(field.metadata["kind"], default_of(field) is None, {})
    if dataclasses.is_dataclass(field.type):
        return _section(field.type)
    by_level = {"type": "object", "propertyNames": {"pattern": f"^{LEVEL}$"}, "additionalProperties": _LEVEL_VALUE}
    if field.type is dict:
        return {"anyOf": [by_level, {"enum": list(SCENARIOS)}]} if name == "budgets" else by_level
    if field.type is tuple:
        return {"anyOf": [{"type": "string"}, by_level]}
    value = _value(constraint_of(field))
    if name in ("personal", "units"):
        # Units may be numbered.
        value = _TEXTS
    return {"anyOf": [value, by_level]} if is_by_level(field) else value


def _plugin(kind: str, optional: bool, common: dict) -> dict:
    """Schema of a plug-in: its name, or a mapping of its name, its options and the keys of its section.

    A mapping without a name changes options of the default, or of the plug-in that the base names.
    """
    names, mappings = list(registry.names(kind)), []
    every_option: dict = {}
    for name in names:
        options = {
            option.name: _value(option.constraint) | {"description": option.doc}
            for option in registry.options(kind, name).values()
        }
        every_option |= dict.fromkeys(options, {})
        properties = {"name": {"const": name}, **options, **common}
        mappings.append(
            {
                "type": "object",
                "description": registry.meaning(kind, name),
                "properties": properties,
                "required": ["name"],
                "additionalProperties": False,
            }
        )
    nameless = {"type": "object", "properties": every_option | common, "additionalProperties": False}
    null = [{"type": "null"}] if optional else []
    return {"anyOf": [{"enum": names}, *mappings, nameless, *null]}


def _value(constraint: Constraint) -> dict:
    """Schema of one value."""
    schema: dict
    if constraint.choices:
        schema = {"enum": list(constraint.choices)}
    elif constraint.type == "tuple":
        schema = {"type": "array", "items": _value(constraint.item or Constraint("float"))}
    elif constraint.type == "pair":
        numbers = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
        schema = {"anyOf": [{"type": "integer"}, numbers]}
    else:
        schema = {"type": _TYPES[constraint.type]} | _limits(constraint)
    return {"anyOf": [schema, {"type": "null"}]} if constraint.optional or constraint.sizes else schema


def _limits(constraint: Constraint) -> dict:
    if constraint.pattern:
        return {"pattern": f"^(?:{constraint.pattern})$"}
    if constraint.type not in ("int", "float"):
        return {}
    low, high = constraint.bounds()
    below = {"maximum": high} if constraint.below is None else {"exclusiveMaximum": constraint.below}
    above = {"minimum": low} if constraint.above is None else {"exclusiveMinimum": constraint.above}
    return above | below


def _layer() -> dict:
    """Schema of an item of `model.layers`: a class name, a class name with arguments, a unit, `Repeat` or `Exit`."""
    layers: dict = {}
    for name in layer_table.known_layers():
        constraints, _ = layer_table.arguments(name)
        # `!setting name` may be any argument.
        arguments = {argument: {"anyOf": [_value(c), {"type": "string"}]} for argument, c in constraints.items()}
        layers[name] = {"type": ["object", "null"], "properties": arguments, "additionalProperties": False}
    names = list(layers)
    times = {"type": ["integer", "string"]}
    repeat = {"times": times, "layer": _LAYER, "first": {"type": "object"}, "same_initial_values": {"type": "boolean"}}
    layers["Repeat"] = {"type": "object", "properties": repeat, "additionalProperties": False, "required": ["times"]}
    layers["Exit"] = {"type": "array", "items": _LAYER}
    with_arguments = {"type": "object", "properties": layers, "additionalProperties": False, "maxProperties": 1}
    return {"anyOf": [{"enum": names}, with_arguments, {"type": "array", "items": _LAYER}]}


def _model() -> dict:
    properties = {
        "settings": {"type": "object"},
        "initial_weights": {"type": ["string", "null"]},
        "reinitialize": {"type": "array", "items": {"type": "string"}},
        "frozen": _TEXTS,
        "layers": {"type": "array", "items": _LAYER, "minItems": 1},
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}
