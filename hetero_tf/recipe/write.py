"""Writes recipes as YAML text with all defaults, and lists the keys in which two such texts differ."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import yaml

from hetero_tf.base.constraints import Plugin, inline_plugin, keys
from hetero_tf.recipe.nodes import format_value, to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.schema import Recipe

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_./+-]*")


def resolved_text(recipe: Recipe) -> str:
    """Return the YAML text from which `loads` builds an equal recipe."""
    lines = []
    for name, value in _resolved_values(recipe).items():
        if name == "model":
            layers = value.pop("layers", [])
            lines += ["model:", *(f"  {key}: {flow(child)}" for key, child in value.items())]
            lines += ["  layers:"] * bool(layers) + [f"    - {flow(item)}" for item in layers]
        else:
            lines.append(f"{name}: {flow(value)}")
    return "\n".join(lines) + "\n"


def _resolved_values(recipe):
    """Return the plain value of every key of a recipe; repeats and `!setting` of the model stay unresolved."""
    values = {name: _plain_value(getattr(recipe, name)) for name in keys(Recipe) if name != "model"}
    is_function = recipe.model.function is not None
    names = ["function", "initial_weights"] if is_function else ["initial_weights", "reinitialize", "frozen"]
    values["model"] = {name: _plain_value(getattr(recipe.model, name)) for name in names}
    if not is_function:
        model = to_plain(recipe.tree.value["model"])
        values["model"] = {"settings": model.get("settings") or {}, **values["model"], "layers": model["layers"]}
    return {name: values[name] for name in keys(Recipe)}


def differences(old: str, new: str) -> list[str]:
    """List the keys in which two resolved texts differ, as `round.clients: 10 -> 20`; "absent" for a missing key.

    A part that is null in one text has one line, such as `fleet: null -> set`: a fleet has dozens of keys.
    """
    before, after = keys_of(old), keys_of(new)
    changed = [name for name in {**before, **after} if _typed(before, name) != _typed(after, name)]
    parts = tuple(f"{name}." for name in changed if "set" in (_format_key(before, name), _format_key(after, name)))
    return [
        f"{name}: {_format_key(before, name)} -> {_format_key(after, name)}"
        for name in changed
        if not name.startswith(parts)
    ]


def keys_of(recipe: Recipe | str, name: str = "recipe") -> dict[str, Any]:
    """Return every value of a recipe, or of its resolved text, by its dotted key, such as `round.clients`.

    Raises:
        InputError: The text is not valid YAML for a recipe; the message begins with `name`, line and column.
    """
    return dict(_leaves(_resolved_values(recipe) if isinstance(recipe, Recipe) else to_plain(parse(recipe, name)), ""))


def _typed(values, name):
    """Return a value and its type, since 1, 1.0 and true are equal; None for a missing key."""
    return (type(values[name]), values[name]) if name in values else None


def _format_key(values, name):
    if name in values:
        return format_value(values[name])
    return "set" if any(key.startswith(f"{name}.") for key in values) else "absent"


def _leaves(value, path):
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(child, (dict, list)) for child in value):
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}[{index}]")
    else:
        yield path, value


def _plain_section(section, cls):
    """Return a section of the schema as a dict; the options of its inline plug-in are keys of the section."""
    plugin = inline_plugin(cls)
    options = {} if plugin is None else _plain_value(getattr(section, plugin.name))
    return {**options, **{name: _plain_value(getattr(section, name)) for name in keys(cls)}}


def _plain_value(value):
    if isinstance(value, Plugin):
        return {"name": value.name, **_plain_value(value.options)}
    if dataclasses.is_dataclass(value):
        return _plain_section(value, type(value))
    if isinstance(value, Mapping):
        return {name: _plain_value(child) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_value(child) for child in value]
    return value


def flow(value: Any) -> str:
    """Format a plain value (see `nodes.to_plain`) in YAML flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(name)}: {flow(child)}" for name, child in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(child) for child in value) + "]"
    if isinstance(value, float):
        return _number(value)
    return _text(value) if isinstance(value, str) else format_value(value)


def _number(value):
    """Format a float for every YAML reader: many read 1e-05 as text, but 1.0e-05 as a number."""
    text = repr(value)
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


@functools.lru_cache(maxsize=1024)
def _text(value):
    if _PLAIN.fullmatch(value) and parse(value, "text").value == value:
        return value
    quoted = yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True)
    return quoted.rstrip("\n")
