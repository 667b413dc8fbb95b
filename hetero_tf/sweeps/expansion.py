"""From a sweep to its runs, each with its folder, its overrides and its recipe, all checked before one starts."""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import Recipe, load
from hetero_tf.recipe.naming import short_name
from hetero_tf.recipe.nodes import Node, Position, plain, refusal, show
from hetero_tf.recipe.write import flow
from hetero_tf.sweeps.definition import Part

MOST_RUNS = 10_000


@dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes:
        name: Of its folder.
        path: The recipe's file or shipped name.
        overrides: Texts `path=value`, as for --set.
        recipe: The recipe with them.
    """

    name: str
    path: str
    overrides: tuple[str, ...]
    recipe: Recipe


def expand(parts: Iterable[Part], label: str) -> tuple[Run, ...]:
    """Makes the runs of a sweep, in its order; equal ones count once.

    Args:
        parts: The sweep.
        label: What stands for it in refusals.

    Raises:
        InputError: Names the place of the value with which a recipe is refused; or two runs have one name.
    """
    parts = tuple(parts)
    asked = sum(map(_size, parts))
    if asked > MOST_RUNS:
        raise InputError(f"{label}: asks for {asked:,} runs, at most {MOST_RUNS:,} are allowed; split it")
    runs: dict[str, Run] = {}
    for given, told in itertools.chain.from_iterable(map(_choices, parts)):
        run = _run(given, told, label)
        same = runs.setdefault(run.name, run)
        if same.recipe.source != run.recipe.source:
            raise InputError(
                f"{label}: two different runs are called {run.name}; give one of them another name in the list"
            )
    return tuple(runs.values())


def _size(part):
    return math.prod(map(len, (part.entries or "-", part.seeds or "-", *part.grid.values())))


def _choices(part: Part) -> Iterator[tuple[dict[str, Node], list[str]]]:
    """All values of each run by path, and the paths that its folder's name tells."""
    base = {} if part.recipe is None else {"recipe": part.recipe}
    for entry in part.entries or ({},):
        of_entry = [] if "name" in entry else list(entry)
        for values in itertools.product(*part.grid.values()):
            chosen = dict(zip(part.grid, values, strict=True))
            for seed in part.seeds or (None,):
                seeded = {} if seed is None else {"seed": seed}
                told = [*of_entry, *chosen, *seeded]
                # Those that are given last count, so they also stand last.
                yield _last({**base}, part.set, entry, chosen, seeded), told


def _last(*given):
    """One mapping of several; a key of a later one takes its place there."""
    joined: dict[str, Node] = {}
    for values in given:
        for path, node in values.items():
            joined.pop(path, None)
            joined[path] = node
    return joined


def _run(given, told, label):
    values = dict(given)
    recipe = values.pop("recipe", None)
    if recipe is None or not isinstance(recipe.value, str):
        place = Position(label) if recipe is None else recipe.position
        raise refusal(place, ("recipe",), "must name a file or a shipped recipe such as mnist, here or in grid or list")
    overrides = {path: f"{path}={flow(plain(node))}" for path, node in values.items()}
    try:
        loaded = load(recipe.value, overrides.values())
    except InputError as problem:
        raise _refused(problem, values, overrides, recipe) from None
    texts = {path: _shown(values[path]) for path in told if path in values and path != "name"}
    content = [overrides[path] for path in sorted(texts)]
    return Run(short_name(loaded.name, texts, content), recipe.value, tuple(overrides.values()), loaded)


def _refused(problem, values, overrides, recipe):
    """The refusal of a recipe at the place of the value that it is about, else at that of the recipe's name."""
    text = str(problem)
    for path, override in overrides.items():
        label = f"--set {override if len(override) <= 80 else override[:77] + '...'}: "
        if text.startswith(label):
            return refusal(values[path].position, (), text.removeprefix(label))
    return refusal(recipe.position, (), f"with {', '.join(overrides.values())[:200] or 'no change'}: {text}")


def _shown(node):
    value = plain(node)
    return value if isinstance(value, str) else show(value) if not isinstance(value, (dict, list)) else flow(value)
