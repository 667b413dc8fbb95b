"""Overrides by path: `levels.mix=a1-e9`, `model.layers.0.0.PaddedConv2D.filters=!w 32`."""

import dataclasses
import re

from hetero_tf.base import registry
from hetero_tf.base.errors import BadInput
from hetero_tf.recipe.nodes import Node, plain, refusal, show
from hetero_tf.recipe.reader import DEPTH, parse
from hetero_tf.recipe.renamed import renew, renew_steps
from hetero_tf.recipe.schema import Recipe

_STEP = re.compile(r"(?:^|\.)([A-Za-z_0-9-]+)|\[([0-9]{1,6})\]")


def _plugins(cls, path):
    """`{path: kind}` of every key of a recipe that holds a plug-in."""
    found = {}
    for field in dataclasses.fields(cls):
        here = (*path, field.name)
        if field.metadata.get("kind"):
            found[here] = field.metadata["kind"]
        elif dataclasses.is_dataclass(field.type):
            found |= _plugins(field.type, here)
    return found


PLUGINS = _plugins(Recipe, ())


def apply(root, override):
    """Applies one override to a Node tree.

    Args:
        root: The recipe as read.
        override: `path=value`; a step is a key, a list index or `[index]`; the value is YAML with tags.

    Returns:
        The changed tree, and a list with a note for each old spelling in the override.

    Raises:
        BadInput: No such path, or a value that is not YAML.
    """
    label = f"--set {override if len(override) <= 80 else override[:77] + '...'}"
    text, equals, value = override.partition("=")
    steps = _steps(text.strip())
    if not equals or not steps or not value.strip():
        raise BadInput(f"{label}: must be path=value, such as --set client.epochs=1")
    if len(steps) > DEPTH:
        raise BadInput(f"{label}: the path is too long; at most {DEPTH} steps are allowed")
    steps, notes = renew_steps(steps, label)
    root, of_value = renew(_changed(root, steps, parse(value, label, is_file=False)))
    return root, notes + of_value


def _changed(root, steps, node):
    """The tree with the value at `steps` replaced; a plug-in that gets another name loses the other one's options."""
    old = locate_value(root, steps[:-1])
    root = _put(root, steps, (), node)
    if PLUGINS.get(steps[:-1]) and steps[-1] == "name" and isinstance(node.value, str):
        return _drop_foreign(root, steps[:-1], node.value, old)
    return root


def locate_value(root, steps):
    """The Node at a path, or None."""
    for step in steps:
        if not isinstance(root.value, dict) or step not in root.value:
            return None
        root = root.value[step]
    return root


def _steps(text):
    """`a.b[0].c` as ("a", "b", "0", "c"), or nothing if it is not a path."""
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or (at == 0 and text[0] in ".["):
            return ()
        steps.append(match.group(1) or match.group(2))
        at = match.end()
    return tuple(steps)


def _put(node, steps, path, new):
    """A copy of `node` in which the value at `steps` is `new`; missing keys are made, missing items are not."""
    if not steps:
        return Node(new.value, new.place, new.place)
    step, rest = steps[0], steps[1:]
    value = _opened(node, step, path)
    if isinstance(value, dict):
        child = value.get(step, Node({}, new.place, new.place))
        child = _put(child, rest, (*path, step), new)
        return Node({**value, step: child}, node.place, node.key_place)
    if not isinstance(value, list):
        raise refusal(new.place, path, f"has no keys, so {step!r} cannot be set; it is {show(plain(node))}")
    if not step.isdigit() or int(step) >= len(value):
        raise refusal(
            new.place,
            path,
            f"is a list of {len(value)} items; the next step must be a number from 0 to "
            f"{len(value) - 1}. Received: {step}",
        )
    index = int(step)
    changed = _put(value[index], rest, (*path, index), new)
    return Node([*value[:index], changed, *value[index + 1 :]], node.place, node.key_place)


def _opened(node, step, path):
    """The value of a node, with a plug-in or layer that is written as a plain name turned into its mapping."""
    if isinstance(node.value, str) and path in PLUGINS:
        return {"name": Node(node.value, node.place)}
    if isinstance(node.value, str) and node.value == step:
        return {step: Node({}, node.place)}
    if node.value is None:
        return {}
    return node.value


def _drop_foreign(root, path, name, old):
    """After a change of a plug-in's name: its mapping without the options that only the old plug-in has."""
    kind = PLUGINS[path]
    before = plain(old).get("name") if old is not None and isinstance(old.value, dict) else None
    if name not in registry.names(kind) or before == name or before not in registry.names(kind):
        return root
    foreign = registry.options(kind, before).keys() - registry.options(kind, name).keys()
    return _without(root, path, foreign)


def _without(node, path, names):
    if not path:
        kept = {name: child for name, child in node.value.items() if name not in names}
        return Node(kept, node.place, node.key_place)
    child = _without(node.value[path[0]], path[1:], names)
    return Node({**node.value, path[0]: child}, node.place, node.key_place)
