"""Rules between keys as plain data, read from the plug-ins that a recipe chooses without importing them.

`hetero_tf.methods` describes the tables `REQUIRES`, `CONFLICTS` and `UNUSED`.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin, walk_keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe import geometry
from hetero_tf.recipe.nodes import ErrorList, InvalidValue, dotted, format_value
from hetero_tf.recipe.recipe_files import PLUGINS
from hetero_tf.recipe.schema import Recipe

# {reason: {key: value}}, see `methods`.
Rules = Mapping[str, Mapping[str, Any]]
_KEYS = {path: option for path, option in walk_keys(Recipe) if not option.is_section}
# Keys with a computed value.
_COMPUTED = {
    "fleet": lambda recipe: recipe.fleet,
    "levels.budgets": lambda recipe: {
        name: budget for name, budget in recipe.levels.budgets.items() if name in recipe.levels.names
    },
    "levels.widths": lambda recipe: len({recipe.levels.widths[name] for name in recipe.levels.names}) > 1,
    "model.exits": lambda recipe: (
        bool(recipe.model.exits) and any(recipe.levels.depths.get(name, 2) > 1 for name in recipe.levels.names)
    ),
    "model.trunk": lambda recipe: recipe.model.trunk,
}
# Advice in messages for computed keys, which a recipe cannot set.
_ADVICE = {"levels.widths": "use several levels.widths", "model.exits": "add an `Exit` to model.layers"}


@dataclass(frozen=True)
class KeyValue:
    """The value of a key in a recipe.

    Attributes:
        value: Its value; for a plug-in its name.
        default: Its value in a recipe without the key.
        received: Its value in messages, if that differs.
    """

    path: tuple
    value: Any
    default: Any = None
    received: Any = None

    def matches(self, expected: object) -> bool:
        """Compare with the value of a rule, see `methods`."""
        if isinstance(expected, list):
            return any(self.matches(each) for each in expected)
        if isinstance(expected, bool) and not isinstance(self.value, bool):
            return (self.value != self.default) == expected
        if isinstance(self.value, tuple):
            return len(self.value) >= expected if isinstance(expected, int) else expected in self.value
        return self.value == expected

    def __str__(self) -> str:
        return format_value(self.value if self.received is None else self.received)


@dataclass(frozen=True)
class ChosenPlugin:
    """A plug-in of a recipe, and the path of the key that chooses it."""

    path: tuple
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{dotted(self.path)} {self.name}"

    def rules(self, table_name: str) -> Iterator[tuple[str, dict]]:
        """Yield `(reason, {key: value})` of a table of its kind or module; `REQUIRES` has no reasons.

        Raises:
            InputError: The table has another form.
        """
        options = registry.options(self.kind, self.name)
        for table in registry.constants(self.kind, self.name, table_name):
            combinations = {"": table} if table_name == "REQUIRES" else table
            if not isinstance(combinations, dict) or not all(map(_is_table, combinations.values())):
                form = "{key: value}" if table_name == "REQUIRES" else "{reason: {key: value}}"
                raise InputError(f"{table_name} must have the form {form}. Received: {table!r}")
            for reason, values in combinations.items():
                # A rule may name options of its plug-in without the section.
                full_keys = {key: f"{dotted(self.path)}.{key}" if key in options else key for key in values}
                yield reason, {full_keys[key]: value for key, value in values.items()}

    def has_option(self, key: str) -> bool:
        """Return True for the full key of one of its options."""
        section, _, name = key.rpartition(".")
        return section == dotted(self.path) and name in registry.options(self.kind, self.name)


def _is_table(value):
    return isinstance(value, dict) and bool(value) and all(isinstance(key, str) for key in value)


def plugin_at(recipe: Recipe, path: tuple[str, ...]) -> Plugin | None:
    """Return the `Plugin` of a key, or of a section that mixes the options of its plug-in with other keys."""
    plugin = functools.reduce(getattr, path, recipe)
    return plugin if isinstance(plugin, Plugin | None) else getattr(plugin, PLUGINS[path].name)


def check_plugins(recipe: Recipe) -> None:
    """Raise `InvalidValue` or `InvalidValues` for the rules of chosen plug-ins that a recipe violates."""
    errors, plugins = ErrorList(), {path: plugin_at(recipe, path) for path in PLUGINS}
    kinds = {path: option.constraint.kind for path, option in PLUGINS.items()}
    chosen = [ChosenPlugin(path, kinds[path], plugin.name) for path, plugin in plugins.items() if plugin is not None]
    for table_name, check in (("REQUIRES", _check_required), ("CONFLICTS", check_conflict), ("UNUSED", check_unused)):
        for plugin in chosen:
            try:
                for reason, values in plugin.rules(table_name):
                    with errors:
                        check(recipe, reason, values, plugin)
            except InputError as problem:
                errors.append(InvalidValue(plugin.path, f"{plugin.name} has an invalid rule: {problem}"))
    errors.raise_all()


def _check_required(recipe, _, values, plugin):
    errors, other_plugins = ErrorList(), set()
    for key, expected in values.items():
        section, _, name = key.rpartition(".")
        if section in other_plugins:
            continue
        is_key = isinstance(expected, str) and "." in expected
        value = read_key(recipe, expected)[0].value if is_key else expected
        for current in read_key(recipe, key):
            if not current.matches(value):
                allowed = value if isinstance(value, list) else [value]
                text = " or ".join(each if isinstance(each, str) else format_value(each) for each in allowed)
                text += f" (the value of {expected})" if is_key else ""
                errors.append(_missing(plugin, key, current, value, text))
                # Another plug-in does not have the required options.
                other_plugins |= {section} if name == "name" else set()
    errors.raise_all()


def _missing(plugin, key, current, expected, text):
    """Return the error of a key without its required value, at the plug-in if the recipe does not set the key."""
    if expected is False and not isinstance(current.value, bool):
        return InvalidValue(current.path, f"cannot be combined with {plugin}. Received: {current}")
    if expected is True:
        text = f"{plugin.name} needs {key}; set it, see `hetero_tf explain {key}`"
        return InvalidValue(plugin.path, f"{text}. Received: {current}")
    if isinstance(current.value, tuple) and isinstance(expected, int):
        noun = {"model.trunk": "units in model.layers outside exits"}.get(key, f"items in {key}")
        return InvalidValue(
            plugin.path, f"{plugin.name} needs at least {expected} {noun}. Received: {len(current.value)}"
        )
    if current.value == current.default:
        text = f"{plugin.name} needs {key} {text}; set {key} to {text}"
        return InvalidValue(plugin.path, f"{text}. Received: {current}")
    return InvalidValue(current.path, f"must be {text} with {plugin}. Received: {current}")


def check_conflict(recipe: Recipe, reason: str, values: Mapping[str, Any], plugin: ChosenPlugin | None = None) -> None:
    """Raise `InvalidValue` at the last key if a recipe has all values of an invalid combination.

    Args:
        reason: Why these values exclude each other.
        values: {key: value}, see `methods`.
        plugin: The plug-in whose rule it is.
    """
    for *others, current in _combinations(recipe, values):
        names = [str(plugin)] if plugin else []
        names += [f"{dotted(other.path)} {other}".replace("'", "") for other in others]
        raise InvalidValue(
            current.path, f"cannot be combined with {' and '.join(names)}: {reason}. Received: {current}"
        )


def check_unused(recipe: Recipe, reason: str, values: Mapping[str, Any], plugin: ChosenPlugin | None = None) -> None:
    """Raise `InvalidValue` if a recipe changes the last key of `values`, which has no effect beside the others.

    Args:
        values, plugin: See `check_conflict`.
    """
    *conditions, _ = values.items()
    advice = [_ADVICE.get(key, f"set {key}" if value is False else f"change {key}") for key, value in conditions]
    if plugin and not any(plugin.has_option(key) for key in values):
        advice.append(f"choose other {dotted(plugin.path)}")
    for *_, current in _combinations(recipe, values):
        if current.value != current.default:
            cause = f"{f'with {plugin} ' if plugin else ''}because {reason}"
            raise InvalidValue(
                current.path, f"has no effect {cause}; {', '.join(advice)} or remove this key. Received: {current}"
            )


def _combinations(recipe, values):
    matching = ([each for each in read_key(recipe, key) if each.matches(value)] for key, value in values.items())
    return itertools.product(*matching)


def read_key(recipe: Recipe, key: str) -> list[KeyValue]:
    """Return the value of a key, such as "optimizer.momentum"; of `model.layers.ARGUMENT` one for each layer.

    Raises:
        InputError: The key does not exist.
    """
    path = tuple(key.split("."))
    if key in _COMPUTED:
        value = _COMPUTED[key](recipe)
        return [KeyValue(path, value, type(value)())]
    if path[:2] == ("model", "layers"):
        return [value for spec in recipe.model.layers for value in _layer_values(spec, *path[2:])]
    if path[:-1] in PLUGINS and path not in _KEYS:
        return [_plugin_value(path, PLUGINS[path[:-1]], plugin_at(recipe, path[:-1]))]
    if path not in _KEYS:
        raise InputError(f"unknown key {key!r}{did_you_mean(key, map('.'.join, _KEYS))}")
    default = _KEYS[path].default
    # The keys of an absent section have their defaults.
    value = functools.reduce(lambda section, name: getattr(section, name, default), path, recipe)
    return [KeyValue(path, *(each.name if isinstance(each, Plugin) else each for each in (value, default)))]


def _plugin_value(path, option, plugin):
    """Return the name, an option or a constant of a plug-in; `plugin` may be None."""
    kind, step = option.constraint.kind, path[-1]
    if step == "name":
        return KeyValue(path, plugin and plugin.name, getattr(option.default, "name", None))
    if step.isupper():
        value = plugin and registry.constant(kind, plugin.name, step)
        return KeyValue(path[:-1], value, received=plugin and plugin.name)
    known = {name for each in registry.names(kind) for name in registry.options(kind, each)}
    if step not in known:
        raise InputError(f"unknown key {'.'.join(path)!r}{did_you_mean(step, known)}")
    known_option = registry.options(kind, plugin.name).get(step) if plugin else None
    return KeyValue(path, plugin.options[step], known_option.default) if known_option else KeyValue(path, None)


def _layer_values(spec, argument=None):
    """Yield the class name of a layer, or the value of an argument that it has; "*": of each argument."""
    if argument is None:
        yield KeyValue(spec.path, spec.kind)
    for name in geometry.layer_options(spec.kind) if argument else ():
        if argument in (name, "*"):
            yield KeyValue((*spec.path, name), spec.args.get(name, "its default"))
