"""Finds and reads recipe files: by path, or by the name of a shipped recipe."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe.nodes import Node, error_at, format_value
from hetero_tf.recipe.reader import parse_file

LARGEST_FILE = 256 * 1024
_HERE = Path(__file__).parents[1]
# Folder of the shipped sweeps, inside the folder of recipes.
SWEEPS = "sweeps"
SHIPPED = (_HERE.parent / "recipes", _HERE / "recipes")


@dataclass(frozen=True)
class Source:
    """Text of a recipe file, its name in messages, and its path."""

    text: str
    name: str
    path: Path


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
