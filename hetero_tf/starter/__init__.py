"""Starter recipes: inspects data of the user and writes a commented recipe that trains on them.

Each step is a pure function: the data are inspected (`sources` and one module for each kind of data), the inspection
determines choices with their reasons (`choices`), and the choices become YAML text (`recipe_text`). The data are read
by the loaders of `data`, so the recipe is trained on the inspected values. No code of the data runs.
"""

import warnings
from collections import Counter
from dataclasses import replace

from hetero_tf import data, recipe
from hetero_tf.base import hardware, registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError
from hetero_tf.run.data import split
from hetero_tf.starter.choices import Choice, RecipeDraft, Request
from hetero_tf.starter.models import layers_for
from hetero_tf.starter.recipe_text import recipe_name, render
from hetero_tf.starter.sources import draft_data
from hetero_tf.starter.training import keys_for

__all__ = ["Choice", "RecipeDraft", "Request", "draft_recipe", "render"]


def draft_recipe(request: Request) -> RecipeDraft:
    """Draft a recipe for data of the user.

    Raises:
        InputError: The data cannot be read, or have no likely label; the message names the flag or the format.
    """
    with warnings.catch_warnings():
        # The loader repeats them.
        warnings.simplefilter("ignore", UserWarning)
        draft = draft_data(request)
    options = {name: choice.value for name, choice in draft.options.items()}
    loader = Plugin(options.pop("name"), options)
    targets = registry.constant("tasks", draft.task.value, "TARGETS")
    if loader.name in ("audio", "folder", "tfds") or "image" in options:
        # Their loaders or the statistics of their inputs import TensorFlow.
        hardware.import_quietly()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        dataset = data.load(loader, None, request.data_dir, targets)
    classes = registry.constant("tasks", draft.task.value, "CLASSES")
    if classes not in (None, dataset.classes):
        raise InputError(
            f"--task: {request.path} has {dataset.classes} classes, and the task {draft.task.value} needs {classes}. "
            f"Received: --task={draft.task.value}"
        )
    if draft.task.value == "ordinal" and dataset.sorted_class_names:
        order = Choice(list(dataset.sorted_class_names), "list the classes from the lowest to the highest", True)
        draft = replace(draft, options={**draft.options, "class_order": order})
    keys = keys_for(dataset, draft.task)
    # One line for each kind of warning.
    counts = Counter(str(each.message).removeprefix(f"{dataset.source}: ") for each in caught)
    messages = [*draft.notes, *(text + f" ({count} times)" * (count > 1) for text, count in counts.items())]
    messages += dataset.warnings(keys["partition"].value["clients"])
    name, layers = recipe_name(request.path), layers_for(dataset)
    return RecipeDraft(name, draft, dataset, tuple(messages), layers, keys)


def check(text: str, path: str, draft: RecipeDraft) -> None:
    """Check the text of a draft as the program checks recipes, and split its data.

    Raises:
        InputError: The recipe is invalid, or its data cannot be split.
    """
    split(recipe.loads(text, path), draft.dataset)
