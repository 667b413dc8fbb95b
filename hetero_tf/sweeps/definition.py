"""Definition of a sweep, a YAML file or flags, and its runs; all are checked before one starts.

    recipe: mnist                        # a file or shipped name, as for --recipe
    set: {rounds: 8}                     # for every run
    grid: {levels.mix: [a, a-e]}         # all combinations; `recipe` may also be a key
    list: [{name: x, client.loss: cross_entropy}, {...}]   # keys that change together; `name` is used for the folder
    seeds: 0-2                           # or [0, 1, 2]
    parts: [{grid: ...}, {...}]          # several definitions in one sweep; each inherits the keys above

A run has one entry of the list, one value of each key of the grid, and one seed. Paths of keys are those of --set.

The folder of a sweep has its definition, its log, and a folder for each run. It belongs to one sweep, which may grow by
runs, values, seeds or rounds. A sweep that lacks a run that was started, or changes its recipe, is refused.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetero_tf.base import files
from hetero_tf.base.errors import InputError, did_you_mean
from hetero_tf.base.typed_json import from_json
from hetero_tf.recipe import Recipe, load
from hetero_tf.recipe.naming import short_name
from hetero_tf.recipe.nodes import to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.recipe_files import LARGEST_FILE, sweeps
from hetero_tf.recipe.write import flow
from hetero_tf.runs.history import shown
from hetero_tf.runs.run_folder import SWEEP

MOST_SEEDS = MOST_RUNS = 10_000
_RANGE = re.compile("([0-9]{1,9})-([0-9]{1,9})")
# A comma outside of brackets and quotes separates the values of --sweep.
_LIST, _MAPPING = r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]", r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
_VALUE = rf"""(?:[^,\[\]{{}}"']|"[^"]*"|'[^']*'|{_LIST}|{_MAPPING})+"""


@dataclass(frozen=True)
class SweepPart:
    """One product of values by their paths.

    Attributes:
        recipe: Default recipe of the runs; None if each entry of list or grid names one.
        list: Values that change together; empty without a list.
        seeds: Values of `seed`; empty: the seed of the recipe.
    """

    recipe: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    list: tuple[dict[str, Any], ...] = ()
    seeds: tuple[int, ...] = ()


KEYS = (*(each.name for each in dataclasses.fields(SweepPart)), "parts")


def read(path: str | Path) -> tuple[SweepPart, ...]:
    """Read a sweep file, or a shipped sweep such as `heterofl_table7`."""
    known, name = sweeps(), str(path).removeprefix("recipes/").removeprefix("sweeps/").removesuffix(".yaml")
    file = Path(path) if Path(path).is_file() else known.get(name, Path(path))
    if not file.exists():
        raise InputError(f"{path}: no such sweep{did_you_mean(name, known)}")
    return reads(files.decode(files.read_bytes(file, LARGEST_FILE, follow=True), file), str(path))


def reads(text: str, label: str) -> tuple[SweepPart, ...]:
    """Parse the text of a sweep; `label` is its file name in errors."""
    keys = from_json(dict[str, Any], to_plain(parse(text, label)), label)
    parts = from_json(list[dict[str, Any]], keys.pop("parts", [{}]), f"{label}: parts")
    return tuple(_part(keys, part, label) for part in parts)


def _part(keys, part, label):
    """Return a part that inherits the keys of its sweep; the mappings of `set` are merged."""
    for key in (*keys, *part):
        if key not in KEYS or key == "parts":
            raise InputError(f"{label}: {key}: unknown key{did_you_mean(key, KEYS[:-1])}")
    merged = {**keys, **part}
    read_part = from_json(SweepPart, merged | {"seeds": parse_seeds(merged.get("seeds", []), label)}, label)
    if read_part.seeds and "seed" in read_part.grid:
        raise InputError(f"{label}: seeds replaces grid.seed; use one of them")
    inherited = from_json(SweepPart, {"set": keys.get("set", {})}, label)
    return dataclasses.replace(read_part, set=inherited.set | read_part.set)


def parse_seeds(value: Any, label: str) -> list[int]:
    """Return the seeds of `0-2`, `0,1,2`, a number, or a list of numbers, each once."""
    texts = [str(number) for number in value] if isinstance(value, list) else str(value).split(",")
    seeds: list[int] = []
    for text in map(str.strip, texts):
        match = _RANGE.fullmatch(text)
        first, last = match.groups() if match else (text, text)
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < int(first) + MOST_SEEDS):
            raise InputError(f"{label}: seeds must be whole numbers such as 0-2 or [0, 1]. Received: {value!r}")
        seeds += range(int(first), int(last) + 1)
    return list(dict.fromkeys(seeds))


def from_flags(
    recipe: str | None, overrides: Iterable[str], varied_keys: Iterable[str], seeds: str | None
) -> tuple[SweepPart, ...]:
    """Create a sweep from flags.

    Args:
        varied_keys: Strings `path=value,value,...`; commas inside brackets or quotes do not separate values.
        seeds: Seeds such as "0-2" or "0,3", by default the seed of the recipe.
    """
    grid: dict[str, tuple] = {}
    for text in varied_keys:
        (path, equals, values), label = text.partition("="), f"--sweep {text[:80]}"
        if not equals or not re.fullmatch(f"{_VALUE}(,{_VALUE})*", values):
            raise InputError(f"{label}: must be path=value,value,..., such as --sweep levels.mix=a,a-e")
        if {"recipe": recipe, "seed": seeds, **grid}.get(path.strip()):
            raise InputError(f"{label}: another flag has values of this key; use one of them")
        grid[path.strip()] = tuple(_value(value.strip(), label) for value in re.findall(_VALUE, values))
    numbers = () if seeds is None else tuple(parse_seeds(seeds, f"--seeds {seeds}"))
    return with_overrides((SweepPart(recipe, {}, grid, (), numbers),), overrides)


def with_overrides(parts: tuple[SweepPart, ...], overrides: Iterable[str]) -> tuple[SweepPart, ...]:
    """Add strings `path=value` for all runs; values of a list or grid have priority."""
    values = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        if not equals or not value.strip():
            raise InputError(f"--set {override[:80]}: must be path=value, such as --set client.epochs=1")
        values[path.strip()] = _value(value, f"--set {override[:80]}")
    # Keys that each run of a part takes from its grid, its list or its seeds.
    varied = [
        {*part.grid, *["seed"] * bool(part.seeds), *set.intersection(*map(set, part.list or [{}]))} for part in parts
    ]
    parents = {path: set(itertools.accumulate(path.split("."), "{}.{}".format)) for path in values}
    if ignored := [path for path in values if all(parents[path] & keys for keys in varied)]:
        raise InputError(f"--set {ignored[0]}: the sweep varies this key; leave it out, or train one run by --recipe")
    return tuple(dataclasses.replace(part, set={**part.set, **values}) for part in parts)


def _value(text, label):
    return to_plain(parse(text, label, is_file=False))


def to_yaml(parts: Iterable[SweepPart]) -> str:
    """Return YAML text that `reads` parses to the same sweep."""
    lines = ["# The sweep of this folder, as read by hetero_tf.", "parts:"]
    for part in parts:
        grid = {path: [*values] for path, values in part.grid.items()}
        keys = vars(part) | {"grid": grid, "list": [*part.list], "seeds": [*part.seeds]}
        part_lines = [f"{name}: {flow(value)}" for name, value in keys.items() if value not in (None, {}, [])]
        lines += [f"  - {part_lines[0]}", *(f"    {line}" for line in part_lines[1:])]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep."""

    name: str
    path: str
    overrides: tuple[str, ...]
    recipe: Recipe


def expand(parts: Sequence[SweepPart], label: str) -> tuple[SweepRun, ...]:
    """Return the runs of a sweep in order, without duplicates."""
    num_runs = sum(math.prod(map(len, (part.list or "-", part.seeds or "-", *part.grid.values()))) for part in parts)
    if not 0 < num_runs <= MOST_RUNS:
        raise InputError(f"{label}: must define 1 to {MOST_RUNS:,} runs. Received: {num_runs:,}")
    runs: dict[str, SweepRun] = {}
    for values, name_paths in itertools.chain.from_iterable(map(_combinations, parts)):
        run = _run(values, name_paths, label)
        earlier = runs.setdefault(run.name, run)
        if earlier.recipe.source != run.recipe.source:
            raise InputError(f"{label}: two different runs have the name {run.name}; rename one of them in the list")
    return tuple(runs.values())


def _combinations(part: SweepPart) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield the values of each run by path, and the paths that form the name of its folder."""
    base = {} if part.recipe is None else {"recipe": part.recipe}
    for entry in part.list or ({},):
        entry_paths = [] if "name" in entry else list(entry)
        for values in itertools.product(*part.grid.values()):
            grid_values = dict(zip(part.grid, values, strict=True))
            for seed in part.seeds or (None,):
                seed_value = {} if seed is None else {"seed": seed}
                name_paths = [*entry_paths, *grid_values, *seed_value]
                # Later mappings have priority, so their keys also come last.
                yield _merge_in_order(base, part.set, entry, grid_values, seed_value), name_paths


def _merge_in_order(*mappings: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings; a repeated key moves to the position of its last value."""
    merged: dict[str, Any] = {}
    for path, value in itertools.chain.from_iterable(values.items() for values in mappings):
        merged.pop(path, None)
        merged[path] = value
    return merged


def _run(values, name_paths, label):
    recipe = values.pop("recipe", None)
    if not isinstance(recipe, str):
        raise InputError(
            f"{label}: recipe must name a file or a shipped recipe such as mnist, here or in grid or list. "
            f"Received: {recipe!r}"
        )
    overrides = {path: f"{path}={flow(value)}" for path, value in values.items()}
    try:
        loaded = load(recipe, overrides.values())
    except InputError as problem:
        changes = "" if str(problem).startswith("--set") else f"with {', '.join(overrides.values())[:200]}: "
        raise InputError(f"{label}: {changes if overrides else ''}{problem}") from None
    named = {path: values[path] for path in name_paths if path in values and path != "name"}
    texts = {path: flow(each) if isinstance(each, (dict, list)) else shown(each) for path, each in named.items()}
    content = [overrides[path] for path in sorted(texts)]
    return SweepRun(short_name(loaded.name, texts, content), recipe, tuple(overrides.values()), loaded)


LOCK = "sweep.lock"


@dataclass(frozen=True)
class SweepFolder:
    """The paths of a sweep. Creating an object does not access the disk."""

    path: Path

    @property
    def definition_file(self) -> Path:
        """The definition of the sweep, which `sweep` reads again."""
        return self.path / SWEEP

    @contextlib.contextmanager
    def lock(self, notify: Callable[[str], None]) -> Iterator[None]:
        """Create the folder if needed, and lock its definition during the block; wait for another sweep's block."""
        files.create_folder(self.path, "sweep", lambda names: SWEEP in names or LOCK in names)
        with files.hold_lock(self.path / LOCK, notify):
            yield

    def stored_runs(self) -> tuple[SweepRun, ...]:
        """Return the runs of the definition in the folder."""
        label = str(self.definition_file)
        return expand(reads(files.decode(files.read_bytes(label, LARGEST_FILE), label), label), label)

    def write_definition(self, parts: Sequence[SweepPart], notify: Callable[[str], None]) -> None:
        """Write the definition if it has changed."""
        content = to_yaml(parts).encode()
        if os.path.lexists(self.definition_file):
            if files.read_bytes(self.definition_file, LARGEST_FILE) == content:
                return
            notify(f"note: {self.definition_file} was changed")
        files.write_atomic(self.definition_file, content)
