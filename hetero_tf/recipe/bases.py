"""`base: NAME`: a recipe file that says only what it changes of another recipe."""

import os

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.recipe.changes import steps_of, with_change
from hetero_tf.recipe.nodes import Node, plain, refusal, show
from hetero_tf.recipe.old_spellings import renew
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import Source, read_file, shipped

MOST_BASES = 4
_ENDINGS = (".yaml", ".yml")


def read_tree(source: Source, above: tuple[Source, ...] = ()) -> tuple[Node, list[str]]:
    """Reads a recipe file and the bases below it.

    Args:
        source: The file.
        above: The files that led here by their `base`, the first one first.

    Returns:
        The tree of Nodes without the key `base`; each Node has the position of the file that says it. And a list with a
        note for each old spelling in any of the files.

    Raises:
        InputError: A file is no YAML, or a base is missing, leads back or is one too many.
    """
    root = parse(source.text, source.name)
    if not isinstance(root.value, dict) or "base" not in root.value:
        _refuse_paths(root)
        return renew(root)
    below, notes = read_tree(_base_of(source, root.value["base"], above), (*above, source))
    for key, node in root.value.items():
        if key != "base":
            below, of_key = with_change(below, steps_of(key) or (key,), node, keep=True)
            notes += of_key
    below, of_keys = renew(below)
    return Node(below.value, root.position), notes + of_keys


def _refuse_paths(root):
    """Refuses a path in place of a key where there is nothing that it could lead into."""
    for key, node in root.value.items() if isinstance(root.value, dict) else ():
        if len(steps_of(key)) > 1:
            raise refusal(node.key_position, (), f"the path {show(key)} needs a `base`; without one, nest its keys")


def _base_of(source, node, above):
    """The file that the `base` of a source names: a shipped recipe, or a path beside the source."""

    def refused(text):
        return refusal(node.position, ("base",), text)

    name, chain = plain(node), (*above, source)
    if not isinstance(name, str):
        raise refused(f"must be a shipped recipe such as mnist, or a path such as mine.yaml. Received: {show(name)}")
    if name.endswith(_ENDINGS):
        path = source.path.parent / name
        label = os.path.normpath(os.path.join(os.path.dirname(source.name), name))
    elif name in shipped():
        path, label = shipped()[name], f"recipes/{name}.yaml"
    else:
        raise refused(f"no shipped recipe is called {show(name)} (a path ends in .yaml){did_you_mean(name, shipped())}")
    if not os.path.exists(path):
        raise refused(f"there is no file {show(label)}; a path is looked for beside the recipe that says it")
    if path.resolve() in [one.path.resolve() for one in chain]:
        raise refused(f"leads back to {label}; a recipe cannot build on itself")
    if len(chain) > MOST_BASES:
        raise refused(f"more than {MOST_BASES} bases in a row: {' -> '.join(one.name for one in chain)} -> {label}")
    try:
        return read_file(path, label)
    except InputError as problem:
        raise refused(str(problem)) from None
