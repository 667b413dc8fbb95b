"""The recipe: one YAML file that determines a run, checked completely before TensorFlow is imported."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.recipe.bases import read_tree
from hetero_tf.recipe.changes import apply, label_of
from hetero_tf.recipe.check import build_recipe
from hetero_tf.recipe.document import documentation
from hetero_tf.recipe.key_rules import check_keys
from hetero_tf.recipe.model import OwnModel
from hetero_tf.recipe.nodes import InvalidValue, Position, Setting, locate, plain, refusal
from hetero_tf.recipe.recipe_files import Source, read
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.write import differences, keys_of, resolved, written

__all__ = [
    "FREE",
    "Recipe",
    "changed_keys",
    "difference",
    "documentation",
    "given",
    "keys_of",
    "load",
    "loads",
    "located",
]

# Keys that a run may change when it goes on.
FREE = ("rounds", "engine", "evaluate.levels")


def load(path: str | Path, overrides: Iterable[str] = (), own_model: bool = False) -> Recipe:
    """Reads the recipe of a file.

    Args:
        path: A YAML file, or the name of a shipped recipe such as `mnist` or `tiny/mnist`.
        overrides: Texts `path=value`, applied in order, such as `levels.mix=a1-e9`.
        own_model: Whether a Python function builds the model: the recipe need not have the key `model`, of which
            nothing but `initial_weights` is read.

    Raises:
        InputError: Names file, line, column and key (or the override), what is wrong and what is allowed.
    """
    return _built(read(path), overrides, own_model)


def loads(text: str, name: str = "recipe", overrides: Iterable[str] = (), own_model: bool = False) -> Recipe:
    """Builds the recipe of a text.

    Args:
        text: YAML as in a recipe file.
        name: Stands for the file in refusals and in `Recipe.path`; a `base: PATH` is looked for beside it.
        overrides, own_model: See `load`.

    Raises:
        InputError: See `load`.
    """
    return _built(Source(text, name, Path(name)), overrides, own_model)


def given(value: Recipe | Mapping[str, Any] | str | Path, own_model: bool = False) -> Recipe:
    """Returns the recipe that somebody gives in Python.

    Args:
        value: A `Recipe`; a mapping with the keys of a recipe, in which texts such as "!w 8" and "!classes" are tags; a
            YAML text, which has a line break; else the path of a file or the name of a shipped recipe.
        own_model: See `load`.

    Raises:
        InputError: See `load`; or a mapping holds what YAML cannot say.
    """
    if isinstance(value, Recipe):
        return loads(value.source, value.path, own_model=True) if own_model else value
    if isinstance(value, Mapping):
        return loads(written(value), own_model=own_model)
    if isinstance(value, str) and "\n" in value:
        return loads(value, own_model=own_model)
    return load(value, own_model=own_model)


def _built(source, overrides, own_model):
    root, notes = read_tree(source)
    # Each override with the tree before it.
    history = []
    for override in overrides:
        history.append((override, root))
        root, of_override = apply(root, override)
        notes += of_override
    try:
        recipe, text = _checked(root, own_model)
    except InvalidValue as wrong:
        position = _origin(root, plain(root), wrong)
        if position.in_file:
            position = _override_at_fault(history, lambda before: _checked(before, own_model)) or position
        raise refusal(position, wrong.path, wrong.text) from wrong.__cause__
    history = () if own_model else tuple(history)
    return dataclasses.replace(recipe, path=source.name, source=text, notes=tuple(notes), tree=root, history=history)


def _checked(root, own_model):
    """The recipe of a tree, and its resolved text; raises `InvalidValue`."""
    value = plain(root)
    if own_model and isinstance(value, dict):
        model = value.get("model")
        value["model"] = OwnModel(model.get("initial_weights") if isinstance(model, dict) else None)
    recipe = build_recipe(value)
    check_keys(recipe)
    return recipe, resolved(recipe, {"layers": []} if own_model else value["model"])


def _override_at_fault(history, check):
    """The position of the override since which the check of no tree passes; None where it never passed.

    Args:
        history: Each override with the tree before it, see `Recipe.history`.
        check: Raises `InputError` for a tree that is not allowed.
    """
    for override, before in reversed(history):
        try:
            check(before)
        except InputError:
            continue
        return Position(label_of(override))
    return None


def located(
    recipe: Recipe, *key: str, check: Callable[[Recipe], object] | None = None
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which refusals show file, line and key of a recipe, or the override that caused them.

    Args:
        recipe: The recipe; one that was built without a text has no lines to show.
        key: The path to the key that is at work, such as "partition", or "model" and "initial_weights": any
            `InputError` is about it, or about the option of a plug-in whose name begins the sentence. Without one only
            an `InvalidValue` is, which names its key.
        check: Does the same check of another recipe, to find the override that caused an error; None: an override is
            only named where it holds the wrong value itself.
    """
    return contextlib.nullcontext() if recipe.tree is None else _located(recipe, key, check)


@contextlib.contextmanager
def _located(recipe, key, check):
    root = recipe.tree
    try:
        yield
    except InvalidValue as wrong:
        position = _origin(root, plain(root), wrong)
        raise refusal(_cause(recipe, position, check), wrong.path, wrong.text) from wrong.__cause__
    except InputError as problem:
        if not key:
            raise
        option, text = re.fullmatch(r"(?:`(\w+)` (?=must ))?(.*)", str(problem), re.DOTALL).groups()
        path = (*key, option) if option else key
        raise refusal(_cause(recipe, locate(root, path), check), path, text) from problem.__cause__


def _cause(recipe, position, check):
    """The override that caused an error at a position of the file; else the overrides of `data`; else the position."""
    if check is None or not position.in_file:
        return position
    cause = _override_at_fault(recipe.history, lambda before: check(_checked(before, False)[0]))
    # The check of an earlier recipe is against the data of this one.
    of_data = [label_of(override) for override, _ in recipe.history if re.match(r"\s*data\b", override)]
    return cause or (Position(" ".join(of_data)) if of_data else position)


def difference(old: str, new: str) -> list[str]:
    """The keys in which two recipes differ, as `round.clients: 10 -> 20`; "absent" where one lacks it.

    Args:
        old, new: Resolved texts (`Recipe.source`) of this version or of an earlier one, whose old spellings count
            as the new ones and whose missing keys count as their defaults.

    Raises:
        InputError: A text is no recipe.
    """
    one, other = (loads(text, "stored recipe") for text in (old, new))
    changed = differences(one.source, other.source)
    if one.model.layers == other.model.layers:
        # Sizes that stand in the layers of one and in the settings of the other make the same model.
        return [line for line in changed if not line.startswith(("model.settings", "model.layers"))]
    return changed


def changed_keys(old: str, new: str) -> list[str]:
    """Lists the keys in which two resolved recipes differ, without those that a run may change.

    The number of rounds: a run may be extended. The engine: the environment says which one was chosen. Which levels are
    measured: no weight depends on it. A metric that one of them leaves open: `run.resume.check_best` compares what it
    comes to.
    """
    lines = [line for line in difference(old, new) if line.partition(":")[0] not in FREE]
    return [line for line in lines if not (line.startswith("evaluate.best:") and "null" in line)]


def _origin(root, value, wrong):
    """The position to show; a value that came in by `!setting` is shown where the setting has it."""
    if wrong.at_key:
        return locate(root, wrong.path, at_key=True)
    for step in wrong.path:
        inside = isinstance(value, dict) and step in value
        value = value[step] if inside or (isinstance(value, list) and step in range(len(value))) else None
    if not isinstance(value, Setting):
        return locate(root, wrong.path)
    name, _, index = value.name.partition(".")
    return locate(root, ("model", "settings", name, *([int(index)] if index else [])))
