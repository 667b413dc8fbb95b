"""What a sweep asks for: a YAML file, or the same from flags.

    recipe: mnist                        # a file or shipped name, as for --recipe
    set: {rounds: 8}                     # of every run
    grid: {levels.mix: [a, a-e]}         # every value with every other one; `recipe` may be such a key too
    list: [{name: x, client.loss: cross_entropy}, {...}]   # keys that change together; `name` names their folders
    seeds: 0-2                           # or [0, 1, 2]
    parts: [{grid: ...}, {...}]          # several of these in one sweep; each begins with the keys above

A run is one of the list, with one value of each key of the grid and one seed. Paths of keys are those of --set.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.files import decode, read_bytes
from hetero_tf.recipe.changes import steps_of
from hetero_tf.recipe.nodes import Node, Position, plain, refusal, show
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import LARGEST_FILE, sweeps
from hetero_tf.recipe.write import flow

KEYS = ("recipe", "set", "grid", "list", "seeds", "parts")
MOST_SEEDS = 10_000
_RANGE = re.compile("([0-9]{1,9})-([0-9]{1,9})")
# A comma outside of brackets and quotes parts the values of --sweep.
_VALUE = re.compile(r"""(?:[^,\[\]{}"']|"[^"]*"|'[^']*'|\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]|\{[^{}]*\})+""")


@dataclass(frozen=True)
class Part:
    """One product of values; all mappings are `{path: Node}`, and a Node knows where it was written.

    Attributes:
        recipe: The recipe of every run whose list or grid names none; None: they all do.
        set: Values of every run.
        grid: `{path: its values}`.
        entries: Values that change together; none: there is no list.
        seeds: The values of `seed`; none: that of the recipe.
    """

    recipe: Node | None
    set: dict[str, Node]
    grid: dict[str, tuple[Node, ...]]
    entries: tuple[dict[str, Node], ...]
    seeds: tuple[Node, ...]


def read(path: str | Path) -> tuple[Part, ...]:
    """Reads a sweep that a person names: a file, or one that comes with the program, such as `heterofl_table7`.

    Raises:
        InputError: Names file, line and key, what is wrong and what is allowed.
    """
    known, file = sweeps(), Path(path)
    name = str(path).removeprefix("recipes/").removeprefix("sweeps/").removesuffix(".yaml")
    if not file.is_file() and name in known:
        file = known[name]
    if not file.exists():
        raise InputError(f"{path}: no such sweep{did_you_mean(name, known)}")
    return reads(decode(read_bytes(file, LARGEST_FILE, follow=True), file), str(path))


def reads(text: str, label: str) -> tuple[Part, ...]:
    """Reads the text of a sweep; `label` stands for its file in refusals."""
    keys = _mapping(parse(text, label), (), "a sweep has keys, such as recipe and grid", KEYS)
    parts = keys.pop("parts", None)
    if parts is None:
        return (_part(keys),)
    inner = [
        _mapping(node, ("parts", index), "a part has keys, such as grid", KEYS[:-1])
        for index, node in _items(parts, ("parts",))
    ]
    return tuple(_part(_under(keys, part)) for part in inner)


def from_flags(recipe: str, overrides: Iterable[str], varied: Iterable[str], seeds: str | None) -> tuple[Part, ...]:
    """Makes a sweep of what was typed.

    Args:
        recipe: A file or shipped name.
        overrides: Texts `path=value` for every run.
        varied: Texts `path=value,value,...`; a comma inside of brackets or quotes belongs to its value.
        seeds: Such as "0-2" or "0,3"; None: the recipe's own.
    """
    grid = {}
    for text in varied:
        path, equals, values = text.partition("=")
        label = f"--sweep {text[:80]}"
        if not equals or not steps_of(path.strip()) or not _VALUE.findall(values):
            raise InputError(f"{label}: must be path=value,value,..., such as --sweep levels.mix=a,a-e")
        grid[path.strip()] = tuple(parse(value.strip(), label, is_file=False) for value in _VALUE.findall(values))
    typed = Position("--recipe")
    numbers = () if seeds is None else _seeds(Node(seeds, Position(f"--seeds {seeds}")))
    part = Part(Node(recipe, typed), {}, grid, (), numbers)
    return with_overrides((part,), overrides)


def with_overrides(parts: tuple[Part, ...], overrides: Iterable[str]) -> tuple[Part, ...]:
    """The sweep with further values for all runs, texts `path=value`; what a list or grid says goes before them."""
    more = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not steps_of(path.strip()) or not value.strip():
            raise InputError(f"--set {override[:80]}: must be path=value, such as --set client.epochs=1")
        more[path.strip()] = parse(value, f"--set {override[:80]}", is_file=False)
    return tuple(dataclasses.replace(part, set={**part.set, **more}) for part in parts)


def text_of(parts: Iterable[Part]) -> str:
    """Writes the text that `reads` reads back to the same sweep."""
    lines = ["# The sweep of this folder, as hetero_tf has read it.", "parts:"]
    for part in parts:
        keys = {
            "recipe": part.recipe and plain(part.recipe),
            "set": _plain(part.set),
            "grid": {path: [plain(value) for value in values] for path, values in part.grid.items()},
            "list": [_plain(entry) for entry in part.entries],
            "seeds": [plain(seed) for seed in part.seeds],
        }
        given = [f"{name}: {flow(value)}" for name, value in keys.items() if value not in (None, {}, [])]
        lines += [f"  - {given[0]}", *(f"    {line}" for line in given[1:])]
    return "\n".join(lines) + "\n"


def _plain(values: Mapping[str, Node]) -> dict:
    return {path: plain(value) for path, value in values.items()}


def _part(keys):
    """The `Part` of its keys."""
    recipe = keys.get("recipe")
    part = Part(
        recipe,
        _values(keys["set"], ("set",)) if "set" in keys else {},
        _grid(keys["grid"]) if "grid" in keys else {},
        tuple(_values(node, ("list", index)) for index, node in _items(keys["list"], ("list",)))
        if "list" in keys
        else (),
        _seeds(keys["seeds"]) if "seeds" in keys else (),
    )
    if recipe is not None and not isinstance(recipe.value, str):
        raise refusal(
            recipe.position,
            ("recipe",),
            f"must be a file or a shipped recipe such as mnist. Received: {show(plain(recipe))}",
        )
    return part


def _under(above, part):
    """The keys of a part with those of the whole sweep that it does not give; those of `set` are joined."""
    joined = {**above, **part}
    if (
        "set" in above
        and "set" in part
        and isinstance(above["set"].value, dict)
        and isinstance(part["set"].value, dict)
    ):
        joined["set"] = Node({**above["set"].value, **part["set"].value}, part["set"].position)
    return joined


def _mapping(node, path, what, known):
    if not isinstance(node.value, dict):
        raise refusal(node.position, path, f"{what}. Received: {show(plain(node))}")
    for key, child in node.value.items():
        if key not in known:
            raise refusal(child.key_position or child.position, (*path, key), f"unknown key{did_you_mean(key, known)}")
    return dict(node.value)


def _values(node, path):
    """`{path of a recipe: Node}`, checked."""
    if not isinstance(node.value, dict):
        raise refusal(
            node.position, path, f"must be paths and values, such as {{levels.mix: a-e}}. Received: {show(plain(node))}"
        )
    for key, child in node.value.items():
        if not steps_of(key) or key == "base":
            raise refusal(child.key_position or child.position, (*path, key), "must be the path of a key, as for --set")
    return dict(node.value)


def _grid(node):
    return {
        path: tuple(value for _, value in _items(values, ("grid", path)))
        for path, values in _values(node, ("grid",)).items()
    }


def _items(node, path):
    if not isinstance(node.value, list) or not node.value:
        raise refusal(node.position, path, f"must be a list with at least one item. Received: {show(plain(node))}")
    return list(enumerate(node.value))


def _seeds(node):
    """A Node for each seed of `0-2`, `0,1,2`, a number, or a list of numbers."""
    value = plain(node)
    texts = [str(one) for one in value] if isinstance(value, list) else str(value).split(",")
    seeds: list[int] = []
    for text in map(str.strip, texts):
        first, last = _RANGE.fullmatch(text).groups() if _RANGE.fullmatch(text) else (text, text)
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last) < int(first) + MOST_SEEDS):
            raise refusal(
                node.position, ("seeds",), f"must be whole numbers such as 0-2 or [0, 1]. Received: {show(value)}"
            )
        seeds += range(int(first), int(last) + 1)
    return tuple(Node(seed, node.position) for seed in dict.fromkeys(seeds))
