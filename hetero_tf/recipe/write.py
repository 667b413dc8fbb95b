"""A Recipe as YAML text with every default written out, and the difference of two such texts."""

import dataclasses
import re

import yaml

from hetero_tf.recipe.check import keys
from hetero_tf.recipe.nodes import plain, show
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.schema import Plugin, Recipe, plugin_beside

_PLAIN = re.compile("[A-Za-z_][A-Za-z0-9_./+-]*")


def resolved(recipe, model):
    """The text that `loads` reads back to an equal recipe.

    Args:
        recipe: The `Recipe`.
        model: Plain value of its key `model`, in which repeats and `!setting` still stand.
    """
    lines = []
    for name in keys(Recipe):
        if name == "model":
            given = {
                "settings": model.get("settings") or {},
                "initial_weights": recipe.model.initial_weights,
                "reinitialize": recipe.model.reinitialize,
            }
            lines += ["model:", *(f"  {key}: {_flow(held)}" for key, held in given.items()), "  layers:"]
            lines += [f"    - {_flow(item)}" for item in model["layers"]]
        else:
            lines.append(f"{name}: {_flow(_plain_value(getattr(recipe, name)))}")
    return "\n".join(lines) + "\n"


def differences(old, new):
    """The keys in which two resolved texts differ, as `round.clients: 10 -> 20`; "absent" where one lacks it."""
    before, after = (dict(_leaves(plain(parse(text, "recipe")), "")) for text in (old, new))
    changed = [
        name
        for name in (*before, *(name for name in after if name not in before))
        if name not in before or name not in after or _differ(before[name], after[name])
    ]
    return [f"{name}: {_shown(before, name)} -> {_shown(after, name)}" for name in changed]


def _differ(one, other):
    return type(one) is not type(other) or one != other


def _shown(values, name):
    return show(values[name]) if name in values else "absent"


def _leaves(value, path):
    if isinstance(value, dict) and value:
        for name, held in value.items():
            yield from _leaves(held, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and any(isinstance(held, (dict, list)) for held in value):
        for index, held in enumerate(value):
            yield from _leaves(held, f"{path}[{index}]")
    else:
        yield path, value


def _plain_value(value):
    """A schema value as dicts, lists and single values."""
    if isinstance(value, Plugin):
        return {"name": value.name, **value.options}
    if dataclasses.is_dataclass(value):
        beside = plugin_beside(type(value))
        chosen = {} if beside is None else _plain_value(getattr(value, beside.name))
        return {**chosen, **{name: _plain_key(name, getattr(value, name)) for name in keys(type(value))}}
    return value


def _plain_key(name, value):
    return dict(value) if name == "mix" else _plain_value(value)


def _flow(value):
    """A value in YAML's flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(name)}: {_flow(held)}" for name, held in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(held) for held in value) + "]"
    if isinstance(value, float):
        return _number(value)
    return _text(value) if isinstance(value, str) else show(value)


def _number(value):
    """A float that every YAML reader takes for one: 1e-05 is text to many, 1.0e-05 is not."""
    text = repr(value)
    return text if "." in text or "e" not in text else text.replace("e", ".0e")


def _text(value):
    if _PLAIN.fullmatch(value) and parse(value, "text").value == value:
        return value
    quoted = yaml.safe_dump(value, default_style='"', width=float("inf"), allow_unicode=True)
    return quoted.rstrip("\n")
