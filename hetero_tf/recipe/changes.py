"""Changes of a recipe by path, such as `levels.mix` or `model.layers[0][0].Norm.kind`, by `--set` or above a base."""

import dataclasses
import re

from hetero_tf.base import registry
from hetero_tf.base.constraints import is_plugin, plugin_beside
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import Node, plain, refusal, show
from hetero_tf.recipe.old_spellings import renew, renew_steps
from hetero_tf.recipe.reader import DEPTH, parse
from hetero_tf.recipe.schema import Recipe

_STEP = re.compile(r"(?:^|\.)([A-Za-z_0-9-]+)|\[([0-9]{1,6})\]")


def _sections(cls, path):
    """`{path: field of its plug-in, None without one}` of every key of a recipe that holds a plug-in or other keys."""
    sections = {}
    for field in dataclasses.fields(cls):
        here = (*path, field.name)
        if "doc" not in field.metadata:
            continue
        if is_plugin(field):
            sections[here] = field
        elif dataclasses.is_dataclass(field.type):
            sections[here] = plugin_beside(field.type)
            sections |= {} if field.type is Model else _sections(field.type, here)
    return sections


SECTIONS = {**_sections(Recipe, ()), ("model", "settings"): None}
PLUGINS = {path: field for path, field in SECTIONS.items() if field is not None}


def label_of(override: str) -> str:
    """Returns an override as errors show it: `--set path=value`."""
    return f"--set {override if len(override) <= 80 else override[:77] + '...'}"


def apply(root: Node, override: str) -> tuple[Node, list[str]]:
    """Applies one override to a tree of Nodes.

    Args:
        root: The recipe as read.
        override: `path=value`; a step is a key, a list index or `[index]`; the value is YAML with tags.

    Returns:
        The changed tree, and a list with a note for each old spelling in the override.

    Raises:
        InputError: No such path, or a value that is not YAML.
    """
    label = label_of(override)
    text, equals, value = override.partition("=")
    steps = steps_of(text.strip())
    if not equals or not steps or not value.strip():
        raise InputError(f"{label}: must be path=value, such as --set client.epochs=1")
    node = parse(value, label, is_file=False)
    if steps[0] == "base":
        raise refusal(node.position, (), "a base is named in a recipe file, not by --set")
    root, notes = with_change(root, steps, node)
    root, of_value = renew(root)
    return root, notes + of_value


def with_change(root: Node, steps: tuple[str, ...], node: Node, keep: bool = False) -> tuple[Node, list[str]]:
    """A tree in which the value at a path is another one; missing keys are made, missing list items are not.

    Args:
        root: The tree, in the new spelling.
        steps: The path, in any spelling.
        node: The new value.
        keep: Whether a section keeps the keys that the new value does not give: a mapping of the schema, a plug-in of
            the same name, `model.settings`. Replaced as a whole are lists, mappings of levels, a plug-in by one of
            another name, and the model by one with other layers.

    Returns:
        The changed tree, and a list with a note for each old spelling.
    """
    position = node.key_position or node.position
    if len(steps) > DEPTH:
        raise refusal(position, (), f"the path is too long; at most {DEPTH} steps are allowed")
    steps, notes = renew_steps(steps, position.label)
    node, of_value = renew(node, steps)
    old = _at(root, steps[:-1])
    root = _put(root, steps, (), node, keep)
    if PLUGINS.get(steps[:-1]) and steps[-1] == "name" and isinstance(node.value, str):
        root = _drop_foreign(root, steps[:-1], node.value, old)
    return root, notes + of_value


def steps_of(text: str) -> tuple[str, ...]:
    """`a.b[0].c` as ("a", "b", "0", "c"), or nothing if it is not a path."""
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or (at == 0 and text[0] in ".["):
            return ()
        steps.append(match.group(1) or match.group(2))
        at = match.end()
    return tuple(steps)


def _at(root, steps):
    """The Node at a path of keys, or None."""
    for step in steps:
        if not isinstance(root.value, dict) or step not in root.value:
            return None
        root = root.value[step]
    return root


def _put(node, steps, path, new, keep):
    """A copy of `node`, which stands at `path`, in which the value at `steps` is `new`."""
    if not steps:
        return _over(node, new, path) if keep else Node(new.value, new.position, new.position)
    step, rest = steps[0], steps[1:]
    value = _opened(node, step, path)
    if isinstance(value, dict):
        child = value.get(step, Node({}, new.position, new.position))
        child = _put(child, rest, (*path, step), new, keep)
        return Node({**value, step: child}, node.position, node.key_position)
    if not isinstance(value, list):
        raise refusal(new.position, path, f"has no keys, so {step!r} cannot be set; it is {show(plain(node))}")
    if not step.isdigit() or int(step) >= len(value):
        raise refusal(
            new.position,
            path,
            f"is a list of {len(value)} items; the next step must be a number from 0 to "
            f"{len(value) - 1}. Received: {step}",
        )
    index = int(step)
    changed = _put(value[index], rest, (*path, index), new, keep)
    return Node([*value[:index], changed, *value[index + 1 :]], node.position, node.key_position)


def _over(old, new, path):
    """Puts `new` over `old`; a section keeps the keys that `new` lacks, but for another plug-in or other layers."""
    after, before = new.value, _opened(old, None, path)
    if path not in SECTIONS or not isinstance(after, dict) or not isinstance(before, dict):
        return new
    if path == ("model",) and "layers" in after:
        return new
    if path in PLUGINS and "name" in after and after["name"].value != _name(before, path):
        return new
    both = {key: _over(before[key], child, (*path, key)) if key in before else child for key, child in after.items()}
    return Node({**before, **both}, new.position, new.key_position)


def _opened(node, step, path):
    """The value of a node, with a plug-in or layer that is written as a plain name turned into its mapping."""
    if isinstance(node.value, str) and path in PLUGINS:
        return {"name": Node(node.value, node.position)}
    if isinstance(node.value, str) and node.value == step:
        return {step: Node({}, node.position)}
    if node.value is None:
        return {}
    return node.value


def _drop_foreign(root, path, name, old):
    """After a change of a plug-in's name: its mapping without the options that only the old plug-in has."""
    kind = PLUGINS[path].metadata["kind"]
    before = _name(old.value, path) if old is not None and isinstance(old.value, dict) else None
    if name not in registry.names(kind) or before == name or before not in registry.names(kind):
        return root
    foreign = registry.options(kind, before).keys() - registry.options(kind, name).keys()
    return _without(root, path, foreign)


def _name(options, path):
    """The name of the plug-in in a mapping at a path; that of the default where none is written, None without one."""
    return options["name"].value if "name" in options else getattr(PLUGINS[path].default, "name", None)


def _without(node, path, names):
    if not path:
        rest = {name: child for name, child in node.value.items() if name not in names}
        return Node(rest, node.position, node.key_position)
    child = _without(node.value[path[0]], path[1:], names)
    return Node({**node.value, path[0]: child}, node.position, node.key_position)
