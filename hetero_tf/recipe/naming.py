"""Names of run folders: that of the recipe, and what was changed of it."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import FREE, changed_keys, load
from hetero_tf.recipe.changes import steps_of
from hetero_tf.recipe.schema import Recipe

# A name is cut to so many characters; the longest that file systems hold is 255 bytes.
LONGEST = 100
DIGITS = 8
_UNSAFE = re.compile("[^A-Za-z0-9_.,+-]+")


def run_name(recipe: Recipe, path: str | Path, overrides: Sequence[str]) -> str:
    """Names the run of a recipe with overrides, such as `mnist-levels.mix=e-seed=1`.

    Only what a run must keep when it goes on counts: more rounds are the same run. Runs of one file that must not
    share a folder have different names.

    Args:
        recipe: The recipe with its overrides.
        path: Its file or shipped name, as for `load`.
        overrides: Texts `path=value`.
    """
    changes = _last_of_each(overrides)
    if not changes:
        return recipe.name
    try:
        lines = changed_keys(load(path).source, recipe.source)
    except InputError:
        # Without its overrides it is no recipe, so there is nothing to compare with.
        lines = [f"{key}: {value}" for key, value in changes.items() if key not in FREE]
    lines = [line for line in lines if not line.startswith("name:")]
    keys = [line.partition(":")[0] for line in lines]
    telling = {key: value for key, value in changes.items() if any(_overlap(key, changed) for changed in keys)}
    untold = [key for key in keys if not any(_overlap(key, told) for told in telling)]
    return short_name(recipe.name, telling, lines, exact=not untold and not _nested(telling))


def short_name(stem: str, changes: dict[str, str], content: Sequence[str], exact: bool = True) -> str:
    """Joins a name that any file system can hold.

    Args:
        stem: How it begins; may be empty.
        changes: `{key: value}`, as texts.
        content: What the name stands for. Its digest ends a name that is cut or cannot say all of it.
        exact: Whether the changes say all of it.
    """
    words = [f"{key}={_UNSAFE.sub('_', value).strip('_')}" for key, value in sorted(changes.items())]
    name = "-".join([stem, *words] if stem else words)
    exact = exact and not any(_UNSAFE.search(value) for value in changes.values())
    if not content or (exact and len(name) <= LONGEST):
        return name
    digest = hashlib.sha256("\n".join(content).encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]
    return f"{name[: LONGEST - DIGITS - 1].rstrip('-.=')}-{digest}"


def _last_of_each(overrides):
    """`{path: value}` of the overrides as texts; `a[0]` and `a.0` are one path, and the name of the run is none."""
    changes = {}
    for override in overrides:
        path, _, value = override.partition("=")
        changes[".".join(steps_of(path.strip()))] = value.strip()
    return {path: value for path, value in changes.items() if path != "name"}


def _overlap(one, other):
    """Whether one of two paths leads to the other, or into it."""
    one, other = steps_of(one), steps_of(other)
    return one[: len(other)] == other[: len(one)]


def _nested(changes):
    """Whether one change lies within another: then their order counts, which the name does not tell."""
    paths = list(changes)
    return any(_overlap(one, other) for index, one in enumerate(paths) for other in paths[:index])
