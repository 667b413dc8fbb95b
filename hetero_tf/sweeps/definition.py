"""Definition of a sweep, a YAML file or flags, and its runs; all are checked before one starts.

    recipe: mnist                        # a file or shipped name, as for --recipe
    set: {rounds: 8}                     # for every run
    grid: {levels.mix: [a, a-e]}         # all combinations; `recipe` may also be a key
    list: [{name: x, client.loss: cross_entropy}, {...}]   # keys that change together; `name` is used for the folder
    seeds: 0-2                           # or [0, 1, 2]
    parts: [{grid: ...}, {...}]          # several definitions in one sweep; each inherits the keys above

A run has one entry of the list, one value of each key of the grid, and one seed. Paths of keys are those of --set.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe import Recipe, load
from hetero_tf.recipe.changes import steps_of
from hetero_tf.recipe.naming import short_name
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


MOST_RUNS = 10_000


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    name: str
    path: str
    overrides: tuple[str, ...]
    recipe: Recipe


def expand(parts: Iterable[SweepPart], label: str) -> tuple[SweepRun, ...]:
    """Return the runs of a sweep in order, without duplicates.

    Raises:
        InputError: A recipe is invalid (the message names the position of the value), or two runs have the same name.
    """
    parts = tuple(parts)
    num_runs = sum(math.prod(map(len, (part.entries or "-", part.seeds or "-", *part.grid.values()))) for part in parts)
    if num_runs > MOST_RUNS:
        raise InputError(f"{label}: defines {num_runs:,} runs, at most {MOST_RUNS:,} are allowed; split it")
    runs: dict[str, SweepRun] = {}
    for values, name_paths in itertools.chain.from_iterable(map(_combinations, parts)):
        run = _run(values, name_paths, label)
        earlier = runs.setdefault(run.name, run)
        if earlier.recipe.source != run.recipe.source:
            raise InputError(f"{label}: two different runs have the name {run.name}; rename one of them in the list")
    return tuple(runs.values())


def _combinations(part: SweepPart) -> Iterator[tuple[dict[str, Node], list[str]]]:
    """Yield the values of each run by path, and the paths that form the name of its folder."""
    base = {} if part.recipe is None else {"recipe": part.recipe}
    for entry in part.entries or ({},):
        entry_paths = [] if "name" in entry else list(entry)
        for values in itertools.product(*part.grid.values()):
            grid_values = dict(zip(part.grid, values, strict=True))
            for seed in part.seeds or (None,):
                seed_value = {} if seed is None else {"seed": seed}
                name_paths = [*entry_paths, *grid_values, *seed_value]
                # Later mappings have priority, so their keys also come last.
                yield _merge_in_order({**base}, part.set, entry, grid_values, seed_value), name_paths


def _merge_in_order(*mappings):
    """Merge mappings; a repeated key moves to the position of its last value."""
    merged: dict[str, Node] = {}
    for values in mappings:
        for path, node in values.items():
            merged.pop(path, None)
            merged[path] = node
    return merged


def _run(nodes, name_paths, label):
    values = dict(nodes)
    recipe = values.pop("recipe", None)
    if recipe is None or not isinstance(recipe.value, str):
        position = Position(label) if recipe is None else recipe.position
        raise error_at(
            position, ("recipe",), "must name a file or a shipped recipe such as mnist, here or in grid or list"
        )
    overrides = {path: f"{path}={flow(to_plain(node))}" for path, node in values.items()}
    try:
        loaded = load(recipe.value, overrides.values())
    except InputError as problem:
        raise _relocate_error(problem, values, overrides, recipe) from None
    texts = {path: _format_node(values[path]) for path in name_paths if path in values and path != "name"}
    content = [overrides[path] for path in sorted(texts)]
    return SweepRun(short_name(loaded.name, texts, content), recipe.value, tuple(overrides.values()), loaded)


def _relocate_error(problem, values, overrides, recipe):
    """Move an error of a recipe to the position of the invalid value, or else of the recipe name."""
    text = str(problem)
    for path, override in overrides.items():
        label = f"--set {override if len(override) <= 80 else override[:77] + '...'}: "
        if text.startswith(label):
            return error_at(values[path].position, (), text.removeprefix(label))
    return error_at(recipe.position, (), f"with {', '.join(overrides.values())[:200] or 'no change'}: {text}")


def _format_node(node):
    value = to_plain(node)
    if isinstance(value, (dict, list)):
        return flow(value)
    return value if isinstance(value, str) else format_value(value)
