"""Starter recipes: inspect data of the user, and write a commented recipe that trains on them.

Each step is a pure function: the data are inspected (`sources` and one module for each kind of data), the inspection
determines choices with their reasons (`choices`), and the choices become YAML text. The data are read by the loaders
of `data`, so the recipe is trained on the inspected values. No code of the data runs.
"""

import re
import textwrap
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetero_tf import data, recipe
from hetero_tf.base import hardware, registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import escape_line
from hetero_tf.recipe.write import flow
from hetero_tf.run.data import split
from hetero_tf.starter.choices import Choice, RecipeDraft, Request
from hetero_tf.starter.sources import draft_data
from hetero_tf.starter.training import keys_for, layers_for

__all__ = ["Choice", "RecipeDraft", "Request", "draft_recipe", "render"]


def draft_recipe(request: Request) -> RecipeDraft:
    """Draft a recipe for data of the user."""
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
    """Check the text of a draft as the program checks recipes, and split its data."""
    split(recipe.loads(text, path), draft.dataset)


WIDTH, LONGEST_NAME = 120, 64


def recipe_name(path: str) -> str:
    """Return the name of the recipe for a path: its last part without the ending, with the characters of names."""
    stem = Path(path).name.partition(".")[0] or Path(path).absolute().name
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", stem).strip("._-")
    return name[:LONGEST_NAME] or "mine"


def render(draft: RecipeDraft, commands: tuple[str, ...]) -> str:
    """Return the text of a recipe.

    Args:
        draft: The recipe.
        commands: Next commands of the user.
    """
    facts = [f"data: {draft.dataset.source}", *draft.dataset.describe()]
    facts += [f"check: {warning}" for warning in draft.warnings]
    metric, value, prediction = draft.dataset.baseline
    facts.append(f"to beat: {metric} {value:.4g} of always predicting {prediction}")
    facts += ["", *(f"{'     ' if index else 'run: '}{command}" for index, command in enumerate(commands))]
    lines = ["# A starter recipe. Comments give the reason of a value; `check:` marks a doubtful one.", "#"]
    lines += [line for fact in facts for line in _comment(fact)]
    lines += [f"name: {flow(draft.name)}", "data:"]
    for name, choice in draft.data.options.items():
        lines += _lines("  ", name, choice)
    for name, choice in draft.keys.items():
        if name == "levels":
            lines += ["model:", "  layers:", *(f"    {line}" for line in draft.layers)]
        lines += _lines("", name, choice)
    return "\n".join(lines) + "\n"


def _lines(indent: str, name: str, choice: Choice) -> list[str]:
    line, comment = f"{indent}{name}: {flow(choice.value)}", _single_line(choice.comment)
    if not comment:
        return [line]
    if len(line) + len(comment) + 5 <= WIDTH:
        return [f"{line}   # {comment}"]
    wrapped = textwrap.wrap(comment, WIDTH - len(indent) - 2, break_on_hyphens=False)
    return [*(f"{indent}# {each}" for each in wrapped), line]


def _comment(text):
    """Return the comment lines of a text; continued lines are indented further."""
    text = _single_line(text)
    indent = "#   " + " " * (len(text) - len(text.lstrip()))
    options: dict[str, Any] = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(f"# {text}", WIDTH, **options) if text else ["#"]


def _single_line(text):
    """Return a text without line ends and control characters: names in it come from files."""
    return escape_line(re.sub(r"[\r\n\t]", " ", text))
