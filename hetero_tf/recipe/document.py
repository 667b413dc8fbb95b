"""Generates the tables of recipes/README.md from the schema, the plug-ins and the layer table."""

import dataclasses

from hetero_tf.base import registry
from hetero_tf.base.constraints import (
    Plugin,
    constraint_of,
    default_of,
    inline_plugin_field,
    is_by_level,
    is_plugin,
    keys,
)
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import format_value
from hetero_tf.recipe.schema import Recipe

_HEAD = "| key | allowed | default | meaning |\n| --- | --- | --- | --- |\n"
_MODEL = (
    "| `model.settings` | a mapping of names to values | {} | values that layers refer to by `!setting name` or "
    "`!setting name.0` |\n| `model.initial_weights` | text or null | null | weights that training starts from: the "
    "folder of another run (its best checkpoint, else the newest one), or a .npz file with one array per variable "
    "path; relative paths start at the working folder |\n| `model.reinitialize` | a list of texts | [] | "
    "layers, such as `9_0_dense`, that draw new initial values instead |\n| `model.frozen` | "
    "a list of texts | [] | units that keep their initial values, numbered from 0 as in model.layers; clients run "
    "them, but they are not trained, sent or merged |\n| `model.layers` | a list of layers, units and Repeats | "
    "required | see below |\n"
)


def documentation() -> str:
    """Return all tables as Markdown: keys, plug-ins by kind, and layers."""
    parts = ["### Keys\n\n" + _HEAD + "".join(_rows(Recipe, ""))]
    for kind in registry.EXPORTS:
        parts.append(f"### Plug-ins: {kind}\n\n{_HEAD.replace('key', 'name.option', 1)}" + "".join(_plugins(kind)))
    parts.append("### Layers\n\n| layer | arguments (* required) |\n| --- | --- |\n" + "".join(_layers()))
    return "\n".join(parts)


def _row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _rows(cls, prefix):
    for name, field in keys(cls).items():
        path, about = f"{prefix}{name}", field.metadata
        if field.type is Model:
            yield _MODEL
        elif dataclasses.is_dataclass(field.type) and not is_plugin(field):
            yield from _inline_plugin_row(inline_plugin_field(field.type), path, about["doc"])
            yield from _rows(field.type, f"{path}.")
        else:
            default = "required" if about["required"] else _default(default_of(field))
            yield _row(f"`{path}`", _allowed(field), default, about["doc"])


def _inline_plugin_row(plugin_field, path, doc):
    """Yield the row for the name of a section's plug-in, if it has one."""
    if plugin_field is not None:
        default = "required" if plugin_field.default is dataclasses.MISSING else plugin_field.default.name
        yield _row(f"`{path}.name`", _plugin_names(plugin_field.metadata["kind"]), default, doc)


def _allowed(field):
    if is_plugin(field):
        return _plugin_names(field.metadata["kind"]) + ("" if field.default else " or null")
    if field.type in (dict, tuple):
        return "a mapping" if field.type is dict else "text or a mapping"
    return constraint_of(field).noun() + (" or a mapping" if is_by_level(field) else "")


def _plugin_names(kind):
    return "one of " + ", ".join(registry.names(kind))


def _default(value):
    return value.name if isinstance(value, Plugin) else format_value(value).strip("'")


def _plugins(kind):
    for name in registry.names(kind):
        options = registry.options(kind, name)
        if not options:
            yield _row(f"`{name}`", "no options", "", "")
        for option in options.values():
            default = "required" if option.required else _default(option.default)
            allowed = option.constraint.noun()
            yield _row(f"`{name}.{option.name}`", allowed, default, option.doc)


def _layers():
    for name in layer_table.known_layers():
        constraints, required = layer_table.arguments(name)
        cells = [
            f"`{argument}`{'*' if argument in required else ''}: {constraint.noun()}"
            for argument, constraint in constraints.items()
        ]
        yield _row(f"`{name}`", "; ".join(cells) or "none")
