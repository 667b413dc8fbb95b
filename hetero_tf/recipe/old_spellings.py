"""Old spellings of keys and values: they keep working, each becomes the new one, and a note says so."""

from collections.abc import Iterable

from hetero_tf.recipe.nodes import Node, dotted, plain, refusal

ITEM = "*"

# Path of a key in its old spelling, with `ITEM` for any item of a list -> the new last step.
KEYS = {
    ("model", "fresh"): "reinitialize",
    ("model", "layers", ITEM, "Repeat", "alike"): "same_initial_values",
    ("round", "lost_share"): "non_finite_share",
}
# Path of a key -> its old values and what they are called now; for plug-ins, their names.
VALUES = {
    ("client", "correction"): {"none": None},
    ("engine",): {"slots": "sequential", "cohort": "stacked"},
    ("levels", "assignment"): {"fix": "fixed"},
    ("levels", "measure"): {"flops": "multiply_adds"},
}
# Path of a key that is gone -> the one value that it may still have, and why it is not needed.
GONE = {
    ("round", "merge"): ("masked_mean", "is no longer a key; every merge is the masked mean"),
    ("client", "stages", "tolerance"): (0.05, "is levels.tolerance now, for all methods"),
}


def renew_steps(steps: Iterable[str], label: str) -> tuple[tuple[str, ...], list[str]]:
    """The path of an override in the new spelling.

    Args:
        steps: Its steps as texts; the number of a list item is a text too.
        label: The override, for notes.

    Returns:
        The steps, and a list with a note for each that was renamed.
    """
    new: tuple[str, ...] = ()
    notes = []
    for step in steps:
        path = (*new, step)
        name = KEYS.get(_pattern(path), step)
        if name != step:
            shown = dotted(tuple(int(part) if part.isdigit() else part for part in path))
            notes.append(f"{label}: {shown} is now called {name}")
        new = (*new, name)
    return new, notes


def renew(node: Node, path: tuple = ()) -> tuple[Node, list[str]]:
    """A tree of Nodes in the new spelling.

    Args:
        node: What was read.
        path: Where it stands in the recipe.

    Returns:
        The tree, and a list with a note for each old spelling: file, line, column, path and the new name.

    Raises:
        InputError: A key is given in its old and in its new spelling.
    """
    if _old_value(node, path) is not None:
        return _renew_value(node, path)
    if isinstance(node.value, dict):
        value, notes = _renew_keys(node.value, path)
    elif isinstance(node.value, list):
        value, notes = [], []
        for index, item in enumerate(node.value):
            item, of_item = renew(item, (*path, index))
            value.append(item)
            notes += of_item
    else:
        return node, []
    return Node(value, node.position, node.key_position), notes


def _renew_keys(children, path):
    value, notes = {}, []
    for key, child in children.items():
        old, position = (*path, key), child.key_position or child.position
        pattern = _pattern(old)
        if pattern in GONE and plain(child) in (GONE[pattern][0], {"name": GONE[pattern][0]}):
            notes.append(f"{position.label}: {dotted(old)} {GONE[pattern][1]}")
            continue
        name = KEYS.get(pattern, key)
        if name != key:
            if name in children:
                raise refusal(position, old, f"is now called {name}, which is given too; leave {key} out")
            notes.append(f"{position.label}: {dotted(old)} is now called {name}")
        value[name], of_child = renew(child, (*path, name))
        notes += of_child
    return value, notes


def _old_value(node, path):
    """The value of a node, or the name of its plug-in, if it is an old spelling; else None."""
    names = VALUES.get(_pattern(path), ())
    value = plain(node) if names else None
    value = value.get("name") if isinstance(value, dict) else value
    return value if isinstance(value, str) and value in names else None


def _renew_value(node, path):
    old = _old_value(node, path)
    new = VALUES[_pattern(path)][old]
    said = node.value["name"] if isinstance(node.value, dict) else node
    note = f"{said.position.label}: {dotted(path)}: {old} is now called {new or 'null'}"
    return Node(new, node.position, node.key_position), [note]


def _pattern(path):
    """A path with `ITEM` in place of numbers."""
    return tuple(ITEM if isinstance(step, int) or step.isdigit() else step for step in path)
