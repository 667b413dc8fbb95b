"""Writes a draft as the YAML text of a recipe, with the reason of each choice as a comment on its line."""

import re
import textwrap
from pathlib import Path

from hetero_tf.base.escaping import escape_line
from hetero_tf.recipe.write import flow
from hetero_tf.starter.choices import Choice, RecipeDraft

WIDTH = 120
LONGEST_NAME = 64


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
    """Return the line of a key; a comment that does not fit is wrapped above it."""
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
    return (
        textwrap.wrap(f"# {text}", WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        if text
        else ["#"]
    )


def _single_line(text):
    """Return a text without line ends and control characters: names in it come from files."""
    return escape_line(re.sub(r"[\r\n\t]", " ", text))
