"""Finds and reads recipe files, by path or by the name of a shipped recipe, with their bases and changes.

A change has a path such as `levels.mix` or `model.layers[0][0].Norm.kind`: from `--set`, or over a base.
"""

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base import registry
from hetero_tf.base.constraints import inline_plugin, walk_keys
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe.nodes import Node, error_at, format_value, to_plain
from hetero_tf.recipe.reader import DEPTH, parse, parse_file
from hetero_tf.recipe.schema import Recipe

LARGEST_FILE = 256 * 1024
_HERE = Path(__file__).parents[1]
# Folder of the shipped sweeps, inside the folder of recipes.
SWEEPS = "sweeps"
SHIPPED = (_HERE.parent / "recipes", _HERE / "recipes")


@dataclass(frozen=True)
class Source:
    """Text of a recipe file, its name in messages, its path, and the tree of a mapping without a text."""

    text: str
    name: str
    path: Path
    tree: Node | None = None


def shipped() -> dict[str, Path]:
    """Return the shipped recipes: `{"mnist": file, "tiny/mnist": file, ...}`."""
    return {name: file for name, file in _files().items() if not name.startswith(f"{SWEEPS}/")}


def sweeps() -> dict[str, Path]:
    """Return the shipped sweeps: `{"heterofl_table7": file, ...}`."""
    return {name.partition("/")[2]: file for name, file in _files().items() if name.startswith(f"{SWEEPS}/")}


def fleets() -> dict[str, Path]:
    """Return the shipped fleets: `{"phones": file, ...}`."""
    return {file.stem: file for file in sorted((_HERE / "planning" / "fleets").glob("*.yaml"))}


@functools.cache
def _files():
    folder = next((folder for folder in SHIPPED if folder.is_dir()), SHIPPED[0])
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in sorted(folder.rglob("*.yaml"))}


def read(path: str | Path) -> Source:
    """Read a recipe by path or name.

    Args:
        path: A file, or a shipped recipe by name: `mnist`, `mnist.yaml` or `recipes/mnist.yaml`.

    Raises:
        InputError: The file does not exist, is not a regular file, is too large, or is not UTF-8 text.
    """
    shown, file = str(path)[:200], Path(path)
    known = shipped()
    name = shown.removeprefix("recipes/").removesuffix(".yaml")
    if name in known and not file.is_file():
        shown, file = f"recipes/{name}.yaml", known[name]
    return read_file(file, shown)


def read_file(file: Path, shown: str) -> Source:
    """Read a recipe file; `shown` is its name in error messages. See `read`."""
    if not os.path.exists(file):
        name = shown.removeprefix("recipes/").removesuffix(".yaml")
        raise InputError(f"{shown}: unknown recipe{did_you_mean(name, shipped())}")
    return Source(decode(read_bytes(file, LARGEST_FILE, follow=True), shown), shown, file)


def read_named(node: Node, noun: str, known: dict[str, Path], folder: Path, label: str) -> Source:
    """Return the file that the key `base` or `fleet` names: a shipped one, or a path.

    Args:
        node: The name, a text.
        noun: "recipe" or "fleet".
        known: The shipped files by name.
        folder: Folder that a path is relative to.
        label: The folder in messages.

    Raises:
        InputError: The file is missing or cannot be read.
    """
    name, key = node.value, ("base" if noun == "recipe" else noun,)
    if name.endswith((".yaml", ".yml")):
        file, shown = folder / name, os.path.normpath(os.path.join(label, name))
    elif name in known:
        file, shown = known[name], f"{noun}s/{name}.yaml"
    else:
        text = f"no shipped {noun} is called {format_value(name)} (a path ends in .yaml){did_you_mean(name, known)}"
        raise error_at(node.position, key, text)
    if not os.path.exists(file):
        raise error_at(node.position, key, f"the file {format_value(shown)} does not exist")
    try:
        return read_file(file, shown)
    except InputError as problem:
        raise error_at(node.position, key, str(problem)) from None


def read_fleet(node: Node, folder: Path) -> Node:
    """Replace the name or path of a fleet by the mapping of its file; other values stay unchanged.

    Args:
        node: Value of the key `fleet`.
        folder: Folder that a path is relative to.

    Returns:
        The mapping; its Nodes have their positions in the fleet file.

    Raises:
        InputError: The file is missing or not valid YAML.
    """
    if not isinstance(node.value, str):
        return node
    source = read_named(node, "fleet", fleets(), folder, str(folder))
    root = parse_file(source.text, source.name)
    return Node(root.value, root.position, node.key_position)


_STEP = re.compile(r"[A-Za-z_0-9-]+")
_PATH = re.compile(r"[A-Za-z_0-9-]+(\.[A-Za-z_0-9-]+|\[[0-9]{1,6}\])*")

# Path of every key that holds a plug-in or other keys: the option that selects its plug-in, or None.
SECTIONS = {("model", "settings"): None} | {
    path: key if key.is_plugin else inline_plugin(key.constraint.section)
    for path, key in walk_keys(Recipe)
    if key.is_plugin or key.is_section
}
PLUGINS = {path: option for path, option in SECTIONS.items() if option is not None}


def label_of(override: str) -> str:
    """Format an override for error messages: `--set path=value`."""
    return f"--set {override if len(override) <= 80 else override[:77] + '...'}"


def apply(root: Node, override: str) -> Node:
    """Return a tree of Nodes after one override.

    Args:
        root: The recipe as it was read.
        override: `path=value`; a step is a key, a list index or `[index]`; the value is YAML with tags. A path of a
            fleet is relative to the working folder.

    Raises:
        InputError: The path does not exist, or the value is not valid YAML.
    """
    label = label_of(override)
    text, equals, value = override.partition("=")
    steps = steps_of(text.strip())
    if not equals or not steps or not value.strip():
        raise InputError(f"{label}: must be path=value, such as --set client.epochs=1")
    node = parse(value, label, is_file=False)
    if steps[0] == "base":
        raise error_at(node.position, (), "base is allowed only in a recipe file, not with --set")
    return with_change(root, steps, read_fleet(node, Path()) if steps == ("fleet",) else node)


def with_change(root: Node, steps: tuple[str, ...], node: Node, keep: bool = False) -> Node:
    """Return a tree with a new value at a path; missing keys are created, missing list items are not.

    Args:
        keep: Keep the keys of a section that the new value lacks. This applies to mappings of the schema, a plug-in
            of the same name, and `model.settings`. Always replaced are lists, mappings by level, a plug-in of
            another name, and a model with other layers.
    """
    if len(steps) > DEPTH:
        position = node.key_position or node.position
        raise error_at(position, (), f"the path is too long; at most {DEPTH} steps are allowed")
    return _replace(root, steps, (), node, keep)


def steps_of(text: str) -> tuple[str, ...]:
    """Split `a.b[0].c` into ("a", "b", "0", "c"); return () if it is not a path."""
    return tuple(_STEP.findall(text)) if _PATH.fullmatch(text) else ()


def _replace(node, steps, path, new, keep):
    """Return a copy of `node` (at `path`) in which the value at `steps` is `new`."""
    if not steps:
        return _overlay(node, new, path) if keep else Node(new.value, new.position, new.position)
    step, rest = steps[0], steps[1:]
    value = _expand_name(node, step, path)
    if isinstance(value, dict):
        child = value.get(step, Node({}, new.position, new.position))
        child = _replace(child, rest, (*path, step), new, keep)
        if not rest and step == "name" and path in PLUGINS:
            value = _without_foreign_options(value, path, new.value)
        return Node({**value, step: child}, node.position, node.key_position)
    if not isinstance(value, list):
        raise error_at(
            new.position, path, f"has no keys, so {step!r} cannot be set; it is {format_value(to_plain(node))}"
        )
    if not step.isdecimal() or int(step) >= len(value):
        raise error_at(
            new.position,
            path,
            f"is a list of {len(value)} items; the next step must be a number from 0 to "
            f"{len(value) - 1}. Received: {step}",
        )
    index = int(step)
    changed = _replace(value[index], rest, (*path, index), new, keep)
    return Node([*value[:index], changed, *value[index + 1 :]], node.position, node.key_position)


def _overlay(old, new, path):
    """Merge `new` into `old`; a section keeps keys that `new` lacks, unless the plug-in or the layers change."""
    after, before = new.value, _expand_name(old, None, path)
    if path not in SECTIONS or not isinstance(after, dict) or not isinstance(before, dict):
        return new
    if path == ("model",) and ("layers" in after or ("function" in after and "layers" in before)):
        return new
    if path in PLUGINS and "name" in after and after["name"].value != _name(before, path):
        return new
    both = {key: _overlay(before[key], child, (*path, key)) if key in before else child for key, child in after.items()}
    return Node({**before, **both}, new.position, new.key_position)


def _expand_name(node, step, path):
    """Return the value of a node; the plain name of a plug-in or layer becomes a mapping."""
    if isinstance(node.value, str) and path in PLUGINS:
        return {"name": Node(node.value, node.position)}
    if isinstance(node.value, str) and path == ("model",):
        return {"function": Node(node.value, node.position)}
    if isinstance(node.value, str) and node.value == step:
        return {step: Node({}, node.position)}
    if node.value is None:
        return {}
    return node.value


def _without_foreign_options(options, path, name):
    """Remove the options that the new plug-in of a section lacks and the old one has."""
    kind, before = PLUGINS[path].constraint.kind, _name(options, path)
    if not all(each in registry.names(kind) for each in (name, before)):
        return options
    foreign = registry.options(kind, before).keys() - registry.options(kind, name).keys()
    return {key: child for key, child in options.items() if key not in foreign}


def _name(options, path):
    """Return the name of the plug-in in a mapping at a path, else the name of its default, else None."""
    return options["name"].value if "name" in options else getattr(PLUGINS[path].default, "name", None)


MOST_BASES = 4


def read_tree(source: Source, parents: tuple[Source, ...] = ()) -> Node:
    """Read a recipe file and its chain of bases.

    Args:
        parents: The files whose `base` led to this one, in order.

    Returns:
        The tree of Nodes without the key `base`; each Node has its position in the file that contains it.

    Raises:
        InputError: A file is not valid YAML, or a base is missing, circular or nested too deeply.
    """
    root = source.tree or parse_file(source.text, source.name)
    if not isinstance(root.value, dict):
        return root
    values = {key: read_fleet(node, source.path.parent) if key == "fleet" else node for key, node in root.value.items()}
    if "base" not in values:
        for key, node in values.items():
            if len(steps_of(key)) > 1:
                text = f"the path {format_value(key)} needs a `base`; without one, nest its keys"
                raise error_at(node.key_position or node.position, (), text)
        return Node(values, root.position, root.key_position)
    base = read_tree(_base_of(source, values.pop("base"), parents), (*parents, source))
    for key, node in values.items():
        # The file of a fleet replaces the fleet of the base.
        base = with_change(base, steps_of(key) or (key,), node, keep=node is root.value[key])
    return Node(base.value, root.position)


def _base_of(source, node, parents):
    """Return the file named by the `base` of a source: a shipped recipe, or a path relative to the source."""

    def base_error(text):
        return error_at(node.position, ("base",), text)

    if not isinstance(node.value, str):
        received = format_value(to_plain(node))
        raise base_error(f"must be a shipped recipe such as mnist, or a path such as mine.yaml. Received: {received}")
    base = read_named(node, "recipe", shipped(), source.path.parent, os.path.dirname(source.name))
    chain = (*parents, source)
    if base.path.resolve() in [one.path.resolve() for one in chain]:
        raise base_error(f"leads back to {base.name}; a recipe cannot be its own base")
    if len(chain) > MOST_BASES:
        names = " -> ".join(one.name for one in chain)
        raise base_error(f"more than {MOST_BASES} bases in a row: {names} -> {base.name}")
    return base
