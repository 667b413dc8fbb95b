"""Generates the tables of recipes/README.md from the schema, the plug-ins and the layer table."""

from hetero_tf.base import registry
from hetero_tf.base.constraints import Constraint, Option, Plugin, inline_plugin, walk_keys
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.nodes import format_value
from hetero_tf.recipe.schema import Recipe

_HEAD = "| key | allowed | default | meaning |\n| --- | --- | --- | --- |\n"


def documentation() -> str:
    """Return all tables as Markdown: keys, plug-ins by kind, and layers."""
    parts = ["### Keys\n\n" + _HEAD + "".join(_rows())]
    for kind in registry.EXPORTS:
        parts.append(f"### Plug-ins: {kind}\n\n{_HEAD.replace('key', 'name.option', 1)}" + "".join(_plugins(kind)))
    parts.append("### Layers\n\n| layer | arguments (* required) |\n| --- | --- |\n" + "".join(_layers()))
    return "\n".join(parts)


def _row(*cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |\n"


def _rows():
    for path, option in walk_keys(Recipe):
        name = ".".join(path)
        if not option.is_section:
            yield _row(f"`{name}`", allowed(option.constraint), format_default(option), option.doc)
        elif plugin := inline_plugin(option.constraint.section):
            yield _row(f"`{name}.name`", allowed(plugin.constraint), format_default(plugin), option.doc)


def allowed(constraint: Constraint) -> str:
    """Format the allowed values of an option: "one of uniform, samples"; the names of the registered plug-ins."""
    if not constraint.kind:
        return constraint.noun()
    return "one of " + ", ".join(registry.names(constraint.kind)) + (" or null" if constraint.optional else "")


def format_default(option: Option) -> str:
    """Format the default of an option as in a recipe, or "required"."""
    if option.required:
        return "required"
    value = option.default
    return value.name if isinstance(value, Plugin) else format_value(value).strip("'")


def _plugins(kind):
    for name in registry.names(kind):
        options = registry.options(kind, name)
        if not options:
            yield _row(f"`{name}`", "no options", "", "")
        for option in options.values():
            yield _row(f"`{name}.{option.name}`", allowed(option.constraint), format_default(option), option.doc)


def _layers():
    for name in layer_table.known_layers():
        cells = [
            f"`{option.name}`{'*' if option.required else ''}: {option.constraint.noun()}"
            for option in layer_table.options(name).values()
        ]
        yield _row(f"`{name}`", "; ".join(cells) or "none")
