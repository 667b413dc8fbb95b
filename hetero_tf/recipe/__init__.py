"""Recipes: YAML files that determine a run, checked completely before TensorFlow is imported."""

import contextlib
import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.recipe.check import build_recipe
from hetero_tf.recipe.key_rules import check_keys
from hetero_tf.recipe.nodes import ErrorList, InvalidValue, error_at, join_errors, locate, to_plain
from hetero_tf.recipe.reader import from_plain
from hetero_tf.recipe.recipe_files import Source, apply, label_of, read, read_tree
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.write import differences, flow, keys_of, resolved_text

__all__ = ["CHANGEABLE_KEYS", "Recipe", "changed_keys", "as_recipe", "keys_of", "load", "loads", "with_source_location"]

# Name of the data and of the model function of a run whose data set and model were passed from Python.
FROM_PYTHON = "from_python"
# Keys that may change when a run is resumed.
CHANGEABLE_KEYS = (
    "rounds",
    "engine",
    "evaluate.levels",
    "early_stopping.patience",
    "early_stopping.metric",
    "early_stopping.min_delta",
)


def load(path: str | Path, overrides: Iterable[str] = (), passed: Collection[str] = ()) -> Recipe:
    """Load a recipe from a file.

    Args:
        path: A YAML file, or the name of a shipped recipe such as `mnist` or `tiny/mnist`.
        overrides: Texts `path=value`, applied in order, such as `levels.mix=a1-e9`.
        passed: Those of the keys "model" and "data" whose values are passed from Python. They are then optional; of a
            model, only `initial_weights` is read.

    Raises:
        InputError: The recipe is invalid. The message has all errors: file, line, column and key (or the override),
            the problem and the allowed values.
    """
    return _build(read(path), overrides, passed)


def loads(text: str, name: str = "recipe", overrides: Iterable[str] = (), passed: Collection[str] = ()) -> Recipe:
    """Build a recipe from a YAML text.

    Args:
        text: YAML as in a recipe file.
        name: File name in error messages and in `Recipe.path`; a `base: PATH` is relative to its folder.
        overrides, passed: See `load`.

    Raises:
        InputError: See `load`.
    """
    return _build(Source(text, name, Path(name)), overrides, passed)


def as_recipe(value: Recipe | Mapping[str, Any] | str | Path, model: Any = None, dataset: Any = None) -> Recipe:
    """Convert a Python value to a recipe.

    Args:
        value: A `Recipe`; a mapping with the keys of a recipe, in which texts such as "!w 8" and "!classes" are tags; a
            YAML text with at least one line break; or a file path or the name of a shipped recipe.
        model, dataset: Those that are passed from Python, whose keys are then optional; None for others.

    Raises:
        InputError: See `load`; or the mapping has other values than numbers, texts, lists, tuples and mappings.
    """
    passed = [key for key, each in (("model", model), ("data", dataset)) if each is not None]
    if isinstance(value, Recipe):
        function = value.model.function
        is_replaced = model is not None and (function is None or function.name != FROM_PYTHON)
        return loads(value.source, value.path, passed=["model"]) if is_replaced else value
    if isinstance(value, Mapping):
        return _build(Source("", "recipe", Path("recipe"), from_plain(value)), (), passed)
    if isinstance(value, str) and "\n" in value:
        return loads(value, passed=passed)
    return load(value, passed=passed)


def _build(source, overrides, passed):
    root, problems, overrides = read_tree(source), [], tuple(overrides)
    for override in overrides:
        try:
            root = apply(root, override)
        except InputError as problem:
            problems.append(problem)
    if isinstance(root.value, dict):
        for key in passed:
            if key != "data" or key not in root.value:
                root = apply(root, f"{key}={_from_python(root, key)}")
    errors = ErrorList()
    with errors:
        recipe = _check_tree(root)
    located = [(locate(root, error.path, error.at_key), error) for error in errors]
    # First the errors of overrides, then those of files in their order.
    located.sort(key=lambda pair: (pair[0].in_file, pair[0].label.partition(":")[0], pair[0].index))
    problems += [_error_with(overrides, position, error.path, error.text) for position, error in located]
    if problems:
        raise join_errors(source.name, problems)
    return dataclasses.replace(recipe, path=source.name, source=resolved_text(recipe), overrides=overrides)


def _error_with(overrides, position, path, text):
    """Return an error at a position; in a file, it also names the overrides, any of which may be its cause."""
    if position.in_file and overrides:
        text = f"{text} (with {' '.join(map(label_of, overrides))})"
    return error_at(position, path, text)


def _from_python(root, key):
    """Return the text of a key whose value is passed from Python."""
    value = root.value.get(key)
    weights = value.value.get("initial_weights") if key == "model" and value and isinstance(value.value, dict) else None
    return FROM_PYTHON if weights is None else flow({"function": FROM_PYTHON, "initial_weights": to_plain(weights)})


def _check_tree(root):
    """Build and check the recipe of a tree; raises `InvalidValue(s)`."""
    recipe = build_recipe(to_plain(root))
    check_keys(recipe)
    return dataclasses.replace(recipe, tree=root)


@contextlib.contextmanager
def with_source_location(recipe: Recipe, *key: str) -> Iterator[None]:
    """Add file, line and key (or the override) of a recipe to errors of the block.

    Args:
        recipe: The recipe. Without a source text, errors stay unchanged.
        key: Path of the key that errors refer to, such as "partition", or "model" and "initial_weights". Every
            `InputError` is attributed to it, or to the plug-in option that the message begins with. Without a key,
            only an `InvalidValue` is located, by its own path.
    """
    try:
        yield
    except InputError as error:
        if recipe.tree is None or not (key or isinstance(error, InvalidValue)):
            raise
        if isinstance(error, InvalidValue):
            path, text = error.path, error.text
            position = locate(recipe.tree, path, error.at_key)
        else:
            option = re.match(r"`(\w+)` (?=must )", str(error))
            path, text = (*key, option[1]) if option else key, str(error)[option.end() if option else 0 :]
            position = locate(recipe.tree, path)
        raise _error_with(recipe.overrides, position, path, text) from error.__cause__


def changed_keys(old: str, new: str) -> list[str]:
    """List the keys in which two recipes differ, as `round.clients: 10 -> 20`; "absent" for a missing key.

    Excluded are the keys that may change when a run is resumed: the number of rounds and early stopping, because a run
    may be extended; the engine, which the environment records; the evaluated levels, which no weight depends on; and
    `evaluate.best` where one recipe has null, because `run.resume.check_best` compares the resulting metric.

    Args:
        old, new: Resolved texts (`Recipe.source`).

    Raises:
        InputError: A text is not a valid recipe.
    """
    old_recipe, new_recipe = (loads(text, "stored recipe") for text in (old, new))
    lines = differences(old_recipe.source, new_recipe.source)
    if old_recipe.model.layers == new_recipe.model.layers:
        # The same sizes, written in the layers of one recipe and in the settings of the other, give the same model.
        lines = [line for line in lines if not line.startswith(("model.settings", "model.layers"))]
    lines = [line for line in lines if line.partition(":")[0] not in CHANGEABLE_KEYS]
    return [line for line in lines if not (line.startswith("evaluate.best:") and "null" in line)]
