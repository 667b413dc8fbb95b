"""Expands a sweep into runs with folder, overrides and recipe; all are checked before one starts."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import Recipe, load
from hetero_tf.recipe.naming import short_name
from hetero_tf.recipe.nodes import Node, Position, error_at, format_value, to_plain
from hetero_tf.recipe.write import flow
from hetero_tf.sweeps.definition import SweepPart

MOST_RUNS = 10_000


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: Name of its folder.
        path: File or shipped name of the recipe.
        overrides: Strings `path=value`, as for --set.
        recipe: The recipe with the overrides.
    """

    name: str
    path: str
    overrides: tuple[str, ...]
    recipe: Recipe


def expand(parts: Iterable[SweepPart], label: str) -> tuple[SweepRun, ...]:
    """Return the runs of a sweep in order, without duplicates.

    Args:
        parts: The sweep.
        label: Name of the sweep in errors.

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
