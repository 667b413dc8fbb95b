"""JSON Schema (draft 7) of recipes, from the constraints by which recipes are checked, for completion in editors.

An editor resolves `!w n` to a number, `!setting name` to a text and `!classes` to null; the schema allows these where a
layer argument may be one of them. Rules between keys are left to the program.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint, Option, inline_plugin, keys
from hetero_tf.recipe import geometry
from hetero_tf.recipe.check import FRACTION, MEMORY
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.schema import LEVEL, Recipe

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
_LAYER = {"$ref": "#/definitions/layer"}


def recipe_schema() -> dict:
    """Build the schema, with the plug-ins that are registered now, ready for JSON."""
    schema = _section(Recipe)
    schema["properties"]["base"] = {"type": "string", "description": "another recipe, which this one changes"}
    return schema | {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "hetero_tf recipe",
        # `round.clients: 5` changes one key of the base.
        "patternProperties": {r"^[a-z_]+[.\[].*$": {"description": "one key of the base, by its path"}},
        "if": {"not": {"required": ["base"]}},
        "then": _required(Recipe),
        "definitions": {"layer": _layer()},
    }


def _required(cls: Any) -> dict:
    """Schema of the keys that a recipe without a base must have, in nested sections too."""
    sections = {name: _required(key.constraint.section) for name, key in keys(cls).items() if key.is_section}
    return {
        "required": [name for name, key in keys(cls).items() if key.required],
        "properties": {name: {"if": {"type": "object"}, "then": part} for name, part in sections.items()},
    }


def _mapping(properties: dict, **others: Any) -> dict:
    return {"type": "object", "properties": properties, "additionalProperties": False, **others}


def _properties(options: Iterable[Option]) -> dict:
    return {option.name: _value(option.constraint) | {"description": option.doc} for option in options}


def _section(cls: Any) -> dict:
    """Schema of a mapping of keys; where a plug-in is named beside them, also of its options, or of its name alone."""
    plugin, properties = inline_plugin(cls), _properties(keys(cls).values())
    return _mapping(properties) if plugin is None else {"anyOf": list(_plugin(plugin.constraint.kind, properties))}


def _plugin(kind: Any, common: dict) -> Iterator[dict]:
    """Yield the schemas of a plug-in: its name, or a mapping of its name, its options and the keys of its section.

    A mapping without a name changes options of the default, or of the plug-in that the base names.
    """
    names, every_option = registry.names(kind), dict(common)
    yield {"enum": list(names)}
    for name in names:
        options = _properties(registry.options(kind, name).values())
        every_option = dict.fromkeys(options, {}) | every_option
        properties = {"name": {"const": name}, **options, **common}
        yield _mapping(properties, description=registry.meaning(kind, name), required=["name"])
    yield _mapping(every_option)


def _value(constraint: Constraint) -> dict:
    if constraint.type == "section":
        section = _section(constraint.section)
        # `fleet`, which is optional, may be the name of a fleet, and `model` that of a function.
        names = {"type": ["string", "null"] if constraint.optional else "string"}
        return {"anyOf": [section, names]} if constraint.optional or constraint.section is Model else section
    forms = [*_forms(constraint)]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _forms(constraint: Constraint) -> Iterator[dict]:
    """Yield the schemas of the forms of a value: of its type, and texts, a mapping by level, null for `!classes`."""
    kind, item = constraint.type, constraint.item
    if kind == "plugin":
        yield from _plugin(constraint.kind, {})
    elif kind == "dict":
        yield _mapping_of(item, constraint.named) if item else {"type": "object"}
    elif kind == "tuple" and item and item.type == "section":
        yield {"type": "array", "items": _LAYER, "minItems": 1}
    elif kind == "tuple":
        texts = {"type": ["string", "integer"]}
        yield {"type": "array", "items": texts if constraint.numbered else _value(item or Constraint("float"))}
    elif kind == "pair":
        yield {"type": "integer"}
        yield {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    elif not (constraint.choices or constraint.pattern):
        yield {"type": _TYPES[kind]} | _bounds(constraint)
    patterns = (constraint.pattern, constraint.fractions and FRACTION.pattern, constraint.memory and MEMORY.pattern)
    for pattern in filter(None, patterns):
        yield {"type": "string", "pattern": f"^(?:{pattern})$"}
    if constraint.choices:
        yield {"enum": list(constraint.choices)}
    if constraint.by_level:
        yield _mapping_of(replace(constraint, by_level=False))
    if constraint.single:
        yield {"type": "string"}
    if constraint.optional or constraint.sizes:
        yield {"type": "null"}


def _mapping_of(item: Constraint, named: bool = False) -> dict:
    """Schema of values by level, or by any name."""
    names = {} if named else {"propertyNames": {"pattern": f"^{LEVEL}$"}}
    return {"type": "object", **names, "additionalProperties": _value(item)}


def _bounds(constraint: Constraint) -> dict:
    if constraint.type not in ("int", "float"):
        return {}
    low, high = constraint.bounds()
    below = {"maximum": high} if constraint.below is None else {"exclusiveMaximum": constraint.below}
    above = {"minimum": low} if constraint.above is None else {"exclusiveMinimum": constraint.above}
    return above | below


def _layer() -> dict:
    """Schema of an item of `model.layers`: a class name, a class name with arguments, a unit, `Repeat` or `Exit`."""
    layers: dict = {}
    for name in geometry.known_layers():
        # `!setting name` may be any argument.
        arguments = {
            option.name: {"anyOf": [_value(option.constraint), {"type": "string"}]}
            for option in geometry.layer_options(name).values()
        }
        layers[name] = _mapping(arguments) | {"type": ["object", "null"]}
    names = list(layers)
    times = {"type": ["integer", "string"]}
    repeat = {"times": times, "layer": _LAYER, "first": {"type": "object"}, "same_initial_values": {"type": "boolean"}}
    layers["Repeat"] = _mapping(repeat, required=["times"])
    layers["Exit"] = {"type": "array", "items": _LAYER}
    return {"anyOf": [{"enum": names}, _mapping(layers, maxProperties=1), {"type": "array", "items": _LAYER}]}
