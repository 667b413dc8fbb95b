"""`base: NAME`: a recipe file that contains only its changes to another recipe."""

import os

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.changes import steps_of, with_change
from hetero_tf.recipe.fleet_files import read_fleet, with_fleet
from hetero_tf.recipe.nodes import Node, error_at, format_value, to_plain
from hetero_tf.recipe.reader import parse_file
from hetero_tf.recipe.recipe_files import Source, read_file, shipped

MOST_BASES = 4
_ENDINGS = (".yaml", ".yml")


def read_tree(source: Source, parents: tuple[Source, ...] = ()) -> Node:
    """Read a recipe file and its chain of bases.

    Args:
        source: The file.
        parents: The files whose `base` led to this one, in order.

    Returns:
        The tree of Nodes without the key `base`; each Node has its position in the file that contains it.

    Raises:
        InputError: A file is not valid YAML, or a base is missing, circular or nested too deeply.
    """
    root = parse_file(source.text, source.name)
    if not isinstance(root.value, dict) or "base" not in root.value:
        _refuse_paths(root)
        return with_fleet(root, source.path.parent)
    base = read_tree(_base_of(source, root.value["base"], parents), (*parents, source))
    for key, node in root.value.items():
        if key != "base":
            changed = read_fleet(node, source.path.parent) if key == "fleet" else node
            # The file of a fleet replaces the fleet of the base.
            base = with_change(base, steps_of(key) or (key,), changed, keep=changed is node)
    return Node(base.value, root.position)


def _refuse_paths(root):
    """Reject keys that are paths, which are allowed only in a recipe with a base."""
    for key, node in root.value.items() if isinstance(root.value, dict) else ():
        if len(steps_of(key)) > 1:
            raise error_at(
                node.key_position, (), f"the path {format_value(key)} needs a `base`; without one, nest its keys"
            )


def _base_of(source, node, parents):
    """Return the file named by the `base` of a source: a shipped recipe, or a path relative to the source."""

    def base_error(text):
        return error_at(node.position, ("base",), text)

    name, chain = to_plain(node), (*parents, source)
    if not isinstance(name, str):
        raise base_error(
            f"must be a shipped recipe such as mnist, or a path such as mine.yaml. Received: {format_value(name)}"
        )
    if name.endswith(_ENDINGS):
        path = source.path.parent / name
        label = os.path.normpath(os.path.join(os.path.dirname(source.name), name))
    elif name in shipped():
        path, label = shipped()[name], f"recipes/{name}.yaml"
    else:
        raise base_error(
            f"no shipped recipe is called {format_value(name)} (a path ends in .yaml){did_you_mean(name, shipped())}"
        )
    if not os.path.exists(path):
        raise base_error(
            f"the file {format_value(label)} does not exist; paths are relative to the recipe that contains them"
        )
    if path.resolve() in [one.path.resolve() for one in chain]:
        raise base_error(f"leads back to {label}; a recipe cannot be its own base")
    if len(chain) > MOST_BASES:
        raise base_error(f"more than {MOST_BASES} bases in a row: {' -> '.join(one.name for one in chain)} -> {label}")
    try:
        return read_file(path, label)
    except InputError as problem:
        raise base_error(str(problem)) from None
