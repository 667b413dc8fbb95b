"""The recipe: one YAML file that determines a run, checked completely before TensorFlow is imported."""

import dataclasses

from hetero_tf.recipe import check, cross
from hetero_tf.recipe.document import documentation
from hetero_tf.recipe.files import read
from hetero_tf.recipe.nodes import Setting, Wrong, locate, plain, refusal
from hetero_tf.recipe.overrides import apply
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.renamed import renew
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.write import differences, resolved

__all__ = ["Recipe", "difference", "documentation", "load", "loads"]


def load(path, overrides=()):
    """The recipe of a file.

    Args:
        path: A YAML file, or the name of a shipped recipe such as `mnist` or `tiny/mnist`.
        overrides: Texts `path=value`, applied in order, such as `levels.mix=a1-e9`.

    Raises:
        BadInput: Names file, line, column and key (or the override), what is wrong and what is allowed.
    """
    text, shown = read(path)
    return loads(text, shown, overrides)


def loads(text, name="recipe", overrides=()):
    """The recipe of a text; `name` stands for the file in refusals and in `Recipe.path`. See `load`."""
    root, notes = renew(parse(text, name))
    for override in overrides:
        root, of_override = apply(root, override)
        notes += of_override
    value = plain(root)
    layer_paths = []

    def where(path):
        layer_paths.append(path)
        return locate(root, path).label

    try:
        recipe = check.build(value, where)
        by_name = dict(zip((spec.name for spec in recipe.model.layers), layer_paths, strict=True))
        cross.check(recipe, lambda spec: by_name[spec.name])
    except Wrong as wrong:
        raise refusal(_origin(root, value, wrong), wrong.path, wrong.text) from None
    return dataclasses.replace(recipe, path=name, source=resolved(recipe, value["model"]), notes=tuple(notes))


def difference(old, new):
    """The keys in which two recipes differ, as `round.clients: 10 -> 20`; "absent" where one lacks it.

    Args:
        old, new: Resolved texts (`Recipe.source`) of this version or of an earlier one, whose old spellings count
            as the new ones and whose missing keys count as their defaults.

    Raises:
        BadInput: A text is no recipe.
    """
    return differences(*(loads(text, "stored recipe").source for text in (old, new)))


def _origin(root, value, wrong):
    """The place to show; a value that came in by `!setting` is shown where the setting has it."""
    if wrong.at_key:
        return locate(root, wrong.path, at_key=True)
    for step in wrong.path:
        inside = isinstance(value, dict) and step in value
        value = value[step] if inside or (isinstance(value, list) and step in range(len(value))) else None
    if not isinstance(value, Setting):
        return locate(root, wrong.path)
    name, _, index = value.name.partition(".")
    return locate(root, ("model", "settings", name, *([int(index)] if index else [])))
