"""Fleets by name: `fleet: phones` or `fleet: mine.yaml` becomes the mapping of that file."""

import os
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.nodes import Node, error_at, format_value
from hetero_tf.recipe.reader import parse_file
from hetero_tf.recipe.recipe_files import fleets, read_file


def with_fleet(root: Node, folder: Path) -> Node:
    """Return the tree of a recipe in which `fleet` is a mapping; see `read_fleet`."""
    if not isinstance(root.value, dict) or "fleet" not in root.value:
        return root
    return Node({**root.value, "fleet": read_fleet(root.value["fleet"], folder)}, root.position, root.key_position)


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
    known, name = fleets(), node.value
    is_path = name.endswith((".yaml", ".yml"))
    if not is_path and name not in known:
        text = f"no shipped fleet is called {format_value(name)} (a path ends in .yaml){did_you_mean(name, known)}"
        raise error_at(node.position, ("fleet",), text)
    file, label = (folder / name, os.path.normpath(folder / name)) if is_path else (known[name], f"fleets/{name}.yaml")
    if not os.path.exists(file):
        raise error_at(node.position, ("fleet",), f"the file {format_value(label)} does not exist")
    try:
        source = read_file(file, label)
    except InputError as problem:
        raise error_at(node.position, ("fleet",), str(problem)) from None
    root = parse_file(source.text, source.name)
    return Node(root.value, root.position, node.key_position)
