"""Names of run folders: the name of the recipe and its changes."""

import hashlib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.recipe import CHANGEABLE_KEYS, changed_keys, load
from hetero_tf.recipe.recipe_files import steps_of
from hetero_tf.recipe.schema import Recipe

# Longest name in characters; file systems allow 255 bytes.
LONGEST = 100
DIGITS = 8
_UNSAFE = re.compile("[^A-Za-z0-9_.,+-]+")
# MODULE:FUNCTION, alone or as `{function: {name: MODULE:FUNCTION, OPTION: value}}`, with the quotes of YAML.
_OPTIONS = r"((?:, *\w+: *[\w.+-]+)*)"
_FUNCTION = re.compile(rf'(?:{{function: *)?(?:{{name: *)?"?([A-Za-z_][\w.]*):([A-Za-z_]\w*)"?{_OPTIONS}}}*', re.ASCII)


def run_name(recipe: Recipe, path: str | Path, overrides: Sequence[str]) -> str:
    """Return the name of the run of a recipe with overrides, such as `mnist-levels.mix=e-seed=1`.

    Keys that may change when a run is resumed are not part of the name. Runs of one file that must not share a folder
    have different names.

    Args:
        path: Its file or shipped name, as for `load`.
        overrides: Texts `path=value`.
    """
    changes = _last_of_each(overrides)
    if not changes:
        return recipe.name
    try:
        changed = [line.partition(":")[0] for line in changed_keys(load(path).source, recipe.source)]
    except InputError:
        # The file is valid only with its overrides, so there is nothing to compare with.
        changed = [key for key in changes if key not in CHANGEABLE_KEYS]
    named = {key: value for key, value in changes.items() if any(_overlap(key, each) for each in changed)}
    # The order of changes matters if one is inside another.
    is_nested = any(_overlap(*pair) for pair in itertools.combinations(named, 2))
    content = [f"{key}={value}" for key, value in (named.items() if is_nested else sorted(named.items()))]
    return short_name(recipe.name, named, content, exact=not is_nested)


def short_name(stem: str, changes: dict[str, str], content: Sequence[str], exact: bool = True) -> str:
    """Join a name that is valid on every file system.

    Args:
        stem: Beginning of the name; may be empty.
        changes: `{key: value}`, as texts.
        content: All changes. A name that is shortened or incomplete ends with their digest.
        exact: True if `changes` covers the whole content.
    """
    safe = {key: _UNSAFE.sub("_", value).strip("_") for key, value in changes.items()}
    function = _FUNCTION.fullmatch(changes.get("model", ""))
    if function:
        safe["model"] = f"{function[1]}.{function[2]}{re.sub(': *', '=', function[3]).replace(' ', '')}"
    name = "-".join([stem] * bool(stem) + [f"{key}={safe[key]}" for key in sorted(safe)])
    exact = exact and not any(_UNSAFE.search(changes[key]) for key in changes if not (function and key == "model"))
    if not content or (exact and len(name) <= LONGEST):
        return name
    digest = hashlib.sha256("\n".join(content).encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]
    return f"{name[: LONGEST - DIGITS - 1].rstrip('-.=')}-{digest}"


def _last_of_each(overrides):
    """Return `{path: value}` of the overrides as texts, without `name`; `a[0]` and `a.0` are the same path."""
    changes = {}
    for override in overrides:
        path, _, value = override.partition("=")
        changes[".".join(steps_of(path.strip()))] = value.strip()
    return {path: value for path, value in changes.items() if path != "name"}


def _overlap(one, other):
    """Return True if one path is equal to the other or a prefix of it."""
    one, other = steps_of(one), steps_of(other)
    return one[: len(other)] == other[: len(one)]
