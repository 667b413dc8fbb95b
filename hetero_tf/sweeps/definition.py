"""Definition of a sweep: a YAML file, or flags.

    recipe: mnist                        # a file or shipped name, as for --recipe
    set: {rounds: 8}                     # for every run
    grid: {levels.mix: [a, a-e]}         # all combinations; `recipe` may also be a key
    list: [{name: x, client.loss: cross_entropy}, {...}]   # keys that change together; `name` is used for the folder
    seeds: 0-2                           # or [0, 1, 2]
    parts: [{grid: ...}, {...}]          # several definitions in one sweep; each inherits the keys above

A run has one entry of the list, one value of each key of the grid, and one seed. Paths of keys are those of --set.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe.changes import steps_of
from hetero_tf.recipe.nodes import Node, Position, error_at, format_value, to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import LARGEST_FILE, sweeps
from hetero_tf.recipe.write import flow

KEYS = ("recipe", "set", "grid", "list", "seeds", "parts")
MOST_SEEDS = 10_000
_RANGE = re.compile("([0-9]{1,9})-([0-9]{1,9})")
# A comma outside of brackets and quotes separates the values of --sweep.
_VALUE = re.compile(r"""(?:[^,\[\]{}"']|"[^"]*"|'[^']*'|\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\{[^{}]*\})+""")


@dataclass(frozen=True)
class SweepPart:
    """One product of values; all mappings are `{path: Node}`, and a Node has its position in the source.

    Attributes:
        recipe: Default recipe of the runs; None if each entry of list or grid names one.
        set: Values for every run.
        grid: `{path: values}`.
        entries: Values that change together; empty without a list.
        seeds: Values of `seed`; empty: the seed of the recipe.
    """

    recipe: Node | None
    set: dict[str, Node]
    grid: dict[str, tuple[Node, ...]]
    entries: tuple[dict[str, Node], ...]
    seeds: tuple[Node, ...]


def read(path: str | Path) -> tuple[SweepPart, ...]:
    """Read a sweep file, or a shipped sweep such as `heterofl_table7`.

    Raises:
        InputError: The file is missing or invalid; the message names file, line and key.
    """
    known, file = sweeps(), Path(path)
    name = str(path).removeprefix("recipes/").removeprefix("sweeps/").removesuffix(".yaml")
    if not file.is_file() and name in known:
        file = known[name]
    if not file.exists():
        raise InputError(f"{path}: no such sweep{did_you_mean(name, known)}")
    return reads(decode(read_bytes(file, LARGEST_FILE, follow=True), file), str(path))


def reads(text: str, label: str) -> tuple[SweepPart, ...]:
    """Parse the text of a sweep; `label` is its file name in errors."""
    root = parse(text, label)
    keys = _mapping(root, (), "a sweep must be a mapping with keys such as recipe and grid", KEYS)
    parts = keys.pop("parts", None)
    if parts is None:
        return (_part(keys),)
    inner = [
        _mapping(node, ("parts", index), "a part must be a mapping with keys such as grid", KEYS[:-1])
        for index, node in _items(parts, ("parts",))
    ]
    return tuple(_part(_inherit(keys, part)) for part in inner)


def from_flags(
    recipe: str, overrides: Iterable[str], varied_keys: Iterable[str], seeds: str | None
) -> tuple[SweepPart, ...]:
    """Create a sweep from flags.

    Args:
        recipe: A file or shipped name.
        overrides: Strings `path=value` for every run.
        varied_keys: Strings `path=value,value,...`; commas inside brackets or quotes do not separate values.
        seeds: Seeds such as "0-2" or "0,3", by default the seed of the recipe.
    """
    grid = {}
    for text in varied_keys:
        path, equals, values = text.partition("=")
        label = f"--sweep {text[:80]}"
        if not equals or not steps_of(path.strip()) or not _VALUE.findall(values):
            raise InputError(f"{label}: must be path=value,value,..., such as --sweep levels.mix=a,a-e")
        grid[path.strip()] = tuple(parse(value.strip(), label, is_file=False) for value in _VALUE.findall(values))
    recipe_position = Position("--recipe")
    numbers = () if seeds is None else _seeds(Node(seeds, Position(f"--seeds {seeds}")))
    part = SweepPart(Node(recipe, recipe_position), {}, grid, (), numbers)
    return with_overrides((part,), overrides)


def with_overrides(parts: tuple[SweepPart, ...], overrides: Iterable[str]) -> tuple[SweepPart, ...]:
    """Add strings `path=value` for all runs; values of a list or grid have priority."""
    values = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not steps_of(path.strip()) or not value.strip():
            raise InputError(f"--set {override[:80]}: must be path=value, such as --set client.epochs=1")
        values[path.strip()] = parse(value, f"--set {override[:80]}", is_file=False)
    return tuple(dataclasses.replace(part, set={**part.set, **values}) for part in parts)


def to_yaml(parts: Iterable[SweepPart]) -> str:
    """Return YAML text that `reads` parses to the same sweep."""
    lines = ["# The sweep of this folder, as read by hetero_tf.", "parts:"]
    for part in parts:
        keys = {
            "recipe": part.recipe and to_plain(part.recipe),
            "set": _plain(part.set),
            "grid": {path: [to_plain(value) for value in values] for path, values in part.grid.items()},
            "list": [_plain(entry) for entry in part.entries],
            "seeds": [to_plain(seed) for seed in part.seeds],
        }
        part_lines = [f"{name}: {flow(value)}" for name, value in keys.items() if value not in (None, {}, [])]
        lines += [f"  - {part_lines[0]}", *(f"    {line}" for line in part_lines[1:])]
    return "\n".join(lines) + "\n"


def _plain(values: Mapping[str, Node]) -> dict:
    return {path: to_plain(value) for path, value in values.items()}


def _part(keys):
    """Build a `SweepPart` from its keys."""
    recipe = keys.get("recipe")
    part = SweepPart(
        recipe,
        _values(keys["set"], ("set",)) if "set" in keys else {},
        _grid(keys["grid"]) if "grid" in keys else {},
        _entries(keys["list"]) if "list" in keys else (),
        _seeds(keys["seeds"]) if "seeds" in keys else (),
    )
    if recipe is not None and not isinstance(recipe.value, str):
        raise _invalid(recipe, ("recipe",), "must be a file or a shipped recipe such as mnist")
    return part


def _inherit(parent, part):
    """Return the keys of a part with missing ones inherited from the sweep; the mappings of `set` are merged."""
    merged = {**parent, **part}
    values = [keys["set"].value for keys in (parent, part) if "set" in keys]
    if len(values) == 2 and all(isinstance(value, dict) for value in values):
        merged["set"] = Node(values[0] | values[1], part["set"].position)
    return merged


def _invalid(node, path, expectation):
    """Return an error about the value of a node."""
    return error_at(node.position, path, f"{expectation}. Received: {format_value(to_plain(node))}")


def _mapping(node, path, expectation, known):
    if not isinstance(node.value, dict):
        raise _invalid(node, path, expectation)
    for key, child in node.value.items():
        if key not in known:
            raise error_at(child.key_position or child.position, (*path, key), f"unknown key{did_you_mean(key, known)}")
    return dict(node.value)


def _values(node, path):
    """Return a checked mapping `{recipe path: Node}`."""
    if not isinstance(node.value, dict):
        raise _invalid(node, path, "must map paths to values, such as {levels.mix: a-e}")
    for key, child in node.value.items():
        if not steps_of(key) or key == "base":
            raise error_at(
                child.key_position or child.position, (*path, key), "must be the path of a recipe key, as for --set"
            )
    return dict(node.value)


def _grid(node):
    return {
        path: tuple(value for _, value in _items(values, ("grid", path)))
        for path, values in _values(node, ("grid",)).items()
    }


def _entries(node):
    return tuple(_values(entry, ("list", index)) for index, entry in _items(node, ("list",)))


def _items(node, path):
    if not isinstance(node.value, list) or not node.value:
        raise _invalid(node, path, "must be a list with at least one item")
    return list(enumerate(node.value))


def _seeds(node):
    """Return a Node for each seed of `0-2`, `0,1,2`, a number, or a list of numbers."""
    value = to_plain(node)
    texts = [str(number) for number in value] if isinstance(value, list) else str(value).split(",")
    seeds: list[int] = []
    for text in map(str.strip, texts):
        match = _RANGE.fullmatch(text)
        first, last = match.groups() if match else (text, text)
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < int(first) + MOST_SEEDS):
            raise _invalid(node, ("seeds",), "must be whole numbers such as 0-2 or [0, 1]")
        seeds += range(int(first), int(last) + 1)
    return tuple(Node(seed, node.position) for seed in dict.fromkeys(seeds))
