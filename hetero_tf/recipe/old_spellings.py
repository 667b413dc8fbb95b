"""Old spellings of keys and values: they remain valid, are replaced by the new ones, and produce a note."""

from collections.abc import Iterable

from hetero_tf.recipe.nodes import Node, dotted, error_at, to_plain

ITEM = "*"

# Path of a key in its old spelling, with `ITEM` for any list item -> the new last step.
KEYS = {
    ("model", "fresh"): "reinitialize",
    ("model", "layers", ITEM, "Repeat", "alike"): "same_initial_values",
    ("round", "lost_share"): "non_finite_share",
}
# Path of a key -> its old values and their new names; for plug-ins, the name of the plug-in.
VALUES = {
    ("client", "correction"): {"none": None},
    ("engine",): {"slots": "sequential", "cohort": "stacked"},
    ("levels", "assignment"): {"fix": "fixed"},
    ("levels", "measure"): {"flops": "multiply_adds"},
}
# Path of a removed key -> the one value that is still accepted, and the reason.
REMOVED = {
    ("round", "merge"): ("masked_mean", "is no longer a key; every merge is the masked mean"),
    ("client", "stages", "tolerance"): (0.05, "is levels.tolerance now, for all methods"),
}


def migrate_steps(steps: Iterable[str], label: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the path of an override in the new spelling.

    Args:
        steps: Its steps as texts, including numbers of list items.
        label: The override, for notes.

    Returns:
        The steps, and a list with a note for each renamed one.
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


def migrate(node: Node, path: tuple = ()) -> tuple[Node, list[str]]:
    """Return a tree of Nodes in the new spelling.

    Args:
        node: The tree as read.
        path: Its path in the recipe.

    Returns:
        The tree, and a list with a note for each old spelling: file, line, column, path and the new name.

    Raises:
        InputError: A key occurs in its old and in its new spelling.
    """
    if _old_value(node, path) is not None:
        return _migrate_value(node, path)
    if isinstance(node.value, dict):
        value, notes = _migrate_keys(node.value, path)
    elif isinstance(node.value, list):
        value, notes = [], []
        for index, item in enumerate(node.value):
            item, item_notes = migrate(item, (*path, index))
            value.append(item)
            notes += item_notes
    else:
        return node, []
    return Node(value, node.position, node.key_position), notes


def _migrate_keys(children, path):
    value, notes = {}, []
    for key, child in children.items():
        old, position = (*path, key), child.key_position or child.position
        pattern = _pattern(old)
        if pattern in REMOVED and to_plain(child) in (REMOVED[pattern][0], {"name": REMOVED[pattern][0]}):
            notes.append(f"{position.label}: {dotted(old)} {REMOVED[pattern][1]}")
            continue
        name = KEYS.get(pattern, key)
        if name != key:
            if name in children:
                raise error_at(position, old, f"is now called {name}, which is also set; remove {key}")
            notes.append(f"{position.label}: {dotted(old)} is now called {name}")
        value[name], child_notes = migrate(child, (*path, name))
        notes += child_notes
    return value, notes


def _old_value(node, path):
    """Return the value of a node, or the name of its plug-in, if it is an old spelling; else None."""
    names = VALUES.get(_pattern(path), ())
    value = to_plain(node) if names else None
    value = value.get("name") if isinstance(value, dict) else value
    return value if isinstance(value, str) and value in names else None


def _migrate_value(node, path):
    old = _old_value(node, path)
    new = VALUES[_pattern(path)][old]
    name_node = node.value["name"] if isinstance(node.value, dict) else node
    note = f"{name_node.position.label}: {dotted(path)}: {old} is now called {new or 'null'}"
    return Node(new, node.position, node.key_position), [note]


def _pattern(path):
    """Return a path with `ITEM` instead of numbers."""
    return tuple(ITEM if isinstance(step, int) or step.isdigit() else step for step in path)
