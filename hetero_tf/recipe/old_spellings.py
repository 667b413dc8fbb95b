"""Old spellings of recipe keys and values: the error that names the new one, and the rewrite of a text."""

import functools
import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.base.escaping import quote_shell
from hetero_tf.recipe import old_availability
from hetero_tf.recipe.changes import steps_of
from hetero_tf.recipe.nodes import Node, Position, dotted, error_at, to_plain
from hetero_tf.recipe.reader import parse
from hetero_tf.recipe.write import flow

# Paths of keys, without list indices.
KEYS = {
    ("model", "fresh"): "reinitialize",
    ("model", "layers", "Repeat", "alike"): "same_initial_values",
    ("round", "lost_share"): "non_finite_share",
}
# Old values and their new names; for plug-ins, the name of the plug-in.
VALUES: dict[tuple[str, ...], dict[str, str | None]] = {
    ("client", "correction"): {"none": None},
    ("engine",): {"slots": "sequential", "cohort": "stacked"},
    ("levels", "assignment"): {"fix": "fixed"},
    ("levels", "measure"): {"flops": "multiply_adds"},
}
# The only value that a removed key had, and the reason.
REMOVED = {
    ("round", "merge"): ("masked_mean", "every merge is the masked mean"),
    ("client", "stages", "tolerance"): (0.05, "levels.tolerance replaces it for all methods"),
}
# Keys of a sweep, whose values contain paths of recipe keys.
_SWEEP_KEYS = {"parts", "list", "set", "grid"}


@dataclass(frozen=True)
class OldSpelling:
    """An old spelling in a tree of Nodes.

    Attributes:
        position: Position of the old word, for messages.
        start: Offset of the replaced text.
        before, after: The old and the new key, or key and value; `after` gives the reason for a removed key.
        advice: What to do, for errors.
        pattern: Regular expression of the replaced text; None if it must be replaced by hand.
        replacement: Template of the new text, or a function of (text, match) that returns it; None removes the key.
    """

    position: Position
    start: int
    before: str
    after: str
    advice: str
    pattern: str | None
    replacement: str | Callable[[str, re.Match], str] | None

    @property
    def line(self) -> int:
        """Line in the file, from 1."""
        return int(self.position.label.rsplit(":", 2)[1])

    def error(self, hint: str = "") -> InputError:
        """Return the error for a recipe with this spelling; `hint` ends its first line."""
        return error_at(self.position, (), f"{self.before} is an old spelling; {self.advice}{hint}")


def check(root: Node) -> None:
    """Raise `InputError` for the first old spelling in a recipe or sweep."""
    for spelling in _convert(root, ())[1]:
        file = spelling.position.label.rsplit(":", 2)[0]
        can_rewrite = spelling.position.in_file and spelling.pattern is not None and os.path.isfile(file)
        command = f"bin/hetero_tf upgrade {quote_shell(file)}"
        raise spelling.error(f", or rewrite the file with `{command}`" if can_rewrite else "")


def in_new_spelling(text: str, label: str) -> tuple[str, list[OldSpelling]]:
    """Rewrite the old spellings in the text of a recipe or sweep; all other text stays.

    Args:
        text: YAML.
        label: File name in errors.

    Returns:
        The new text, and what was rewritten, in the order of the text.

    Raises:
        InputError: The text is not valid YAML for a recipe, sets a key in both spellings, or cannot be rewritten.
    """
    value, spellings = _convert(parse(text, label), ())
    spellings.sort(key=lambda spelling: spelling.start)
    for spelling in reversed(spellings):
        text = _rewrite(text, spelling)
    try:
        is_equal = not spellings or to_plain(parse(text, label)) == value
    except InputError:
        is_equal = False
    if not is_equal:
        changes = "; ".join(f"{spelling.before} -> {spelling.after}" for spelling in spellings)
        raise InputError(f"{label}: cannot be rewritten in this form; replace by hand: {changes}")
    return text, spellings


def _rewrite(text, spelling):
    if spelling.pattern is None:
        raise spelling.error()
    match = re.compile(spelling.pattern).match(text, spelling.start)
    if match is None:
        return text
    before, after = text[: match.start()], text[match.end() :]
    if callable(spelling.replacement):
        return before + spelling.replacement(text, match) + after
    if spelling.replacement is not None:
        return before + match.expand(spelling.replacement) + after
    if comma := re.match(r"\s*,[ \t]*", after):
        return before + after[comma.end() :]
    if re.match(r"\s*\}", after):
        return re.sub(r",\s*$", "", before) + after
    line_end = re.match(r"[ \t]*(\r?\n|$)", after)
    if line_end and (indent := re.search(r"(?:^|(?<=\n))[ \t]*$", before)):
        return before[: indent.start()] + after[line_end.end() :]
    return before + after.lstrip()


def _convert(node: Node, path: tuple) -> tuple[Any, list[OldSpelling]]:
    """Return the plain value of a Node in the new spelling, and its old spellings."""
    old = _old_name(node, path)
    if old is not None:
        return _convert_value(node, path, old)
    if isinstance(node.value, list):
        items = [_convert(item, (*path, index)) for index, item in enumerate(node.value)]
        return [value for value, _ in items], [spelling for _, inner in items for spelling in inner]
    if not isinstance(node.value, dict):
        return node.value, []
    value: dict[str, Any] = {}
    new_values: dict[tuple, Any] = {}
    spellings = []
    for key, child in node.value.items():
        if (removed := _removed(key, child, node, path)) is not None:
            spellings.append(removed)
            continue
        if _keys((*path, *_steps(key)))[:1] == (old_availability.SECTION,):
            new_keys, inner = _availability(key, child, node, path)
            new_values |= new_keys
            spellings += inner
            continue
        name = _new_name(key, child, path)
        if name != key:
            spellings.append(_renamed(key, name, child, node, path))
        value[name], inner = _convert(child, (*path, *_steps(name)))
        spellings += inner
    for (*sections, name), new_value in new_values.items():
        functools.reduce(dict.__getitem__, sections, value)[name] = new_value
    return value, spellings


def _old_name(node, path):
    """Return the value of a Node, or the name of its plug-in, if it is an old spelling; else None."""
    name = _name_node(node).value
    return name if isinstance(name, str) and name in VALUES.get(_keys(path), ()) else None


def _name_node(node):
    return node.value["name"] if isinstance(node.value, dict) and "name" in node.value else node


def _convert_value(node, path, old):
    new = VALUES[_keys(path)][old]
    before, after = (f"{dotted(path)}: {name}" for name in (old, new or "null"))
    is_mapping = isinstance(node.value, dict)
    pattern = _mapping_of(_pair("name", _quoted(old))) if is_mapping else rf"([\"']?){old}\1"
    replacement = "null" if new is None else rf"\1{new}\1"
    position = _name_node(node).position
    return new, [OldSpelling(position, node.position.index, before, after, f"use {after}", pattern, replacement)]


def _removed(key, child, mapping, path):
    """Return the OldSpelling of a removed key; None for another key, or another value."""
    old, reason = REMOVED.get(_keys((*path, *_steps(key))), (None, ""))
    if old is None or to_plain(child) not in (old, {"name": old}):
        return None
    is_only_key, position = len(mapping.value) == 1, child.key_position
    value = r"[^\s,{}#]+"
    pattern = _pair(key, f"(?:{_mapping_of(_pair('name', value))}|{value})")
    return OldSpelling(
        position,
        mapping.position.index if is_only_key else position.index,
        f"{dotted((*path, key))}: {old}",
        f"removed ({reason})",
        f"remove it, since {reason}",
        _mapping_of(pattern) if is_only_key else pattern,
        "{}" if is_only_key else None,
    )


def _availability(key, child, mapping, path):
    """Return the values that replace the section `availability`, by path, and its old spellings."""
    names, section = _keys((*path, *_steps(key))), to_plain(child)
    for name in reversed(names[1:]):
        section = {name: section}
    values = old_availability.new_values(section)
    texts = {steps: f"{dotted(steps)}: {flow(value)}" for steps, value in values.items()}
    advice = f"use {' and '.join(texts.values())}" if values else "use fleet and round.policy, or remove it"
    before, position = dotted((*path, key)), child.key_position
    old = functools.partial(OldSpelling, position, advice=advice)
    reason = "removed (fleet and round.policy replace it)"
    has_base, round_node = "base" in mapping.value, mapping.value.get("round")
    separate = {} if has_base else {steps: text for steps, text in texts.items() if len(steps) > 1}
    if path or len(names) > 1 or separate and round_node is None:
        after = " and ".join(texts.values()) or reason
        return values, [old(start=position.index, before=before, after=after, pattern=None, replacement=None)]
    lines = [text for steps, text in texts.items() if steps not in separate]
    pattern, replacement = old_availability.PATTERN, (lambda text, match: "\n".join(lines)) if lines else None
    after = " and ".join(lines) or reason
    spellings = [old(start=position.index, before=before, after=after, pattern=pattern, replacement=replacement)]
    for steps, text in separate.items():
        insert = functools.partial(old_availability.insert_policy, policy=flow(values[steps]))
        start = round_node.position.index
        spellings.append(old(start=start, before=f"{before}.deadline", after=text, pattern=r"\{?", replacement=insert))
    dotted_values = {steps if steps in separate else (dotted(steps),): value for steps, value in values.items()}
    return dotted_values, spellings


def _new_name(key, child, path):
    """Return the new name of a key, which may be a path; `client.correction.name: none` becomes `client.correction`."""
    name, steps = key, _steps(key)
    for index, step in enumerate(steps):
        new = KEYS.get(_keys((*path, *steps[: index + 1])))
        if new is not None and not step.isdigit():
            name = name.replace(step, new, 1)
    plugin = key.removesuffix(".name")
    return plugin if plugin != key and _old_name(child, (*path, *_steps(plugin))) is not None else name


def _renamed(key, name, child, mapping, path):
    position, before, after = child.key_position, dotted((*path, key)), dotted((*path, name))
    if name in mapping.value:
        advice, pattern = f"remove it, since {after} is also set", None
    else:
        advice, pattern = f"use {after}", rf"([\"']?){re.escape(key)}\1"
    return OldSpelling(position, position.index, before, after, advice, pattern, rf"\1{name}\1")


def _quoted(word):
    """Return the pattern of a word with or without quotes."""
    word = re.escape(word)
    return rf"(?:\"{word}\"|'{word}'|{word})"


def _pair(key, value_pattern):
    return rf"{_quoted(key)}\s*:\s*{value_pattern}"


def _mapping_of(pair):
    """Return the pattern of a mapping with one pair, with or without braces."""
    return rf"(?:\{{\s*{pair}\s*,?\s*\}}|{pair})"


def _steps(key):
    return steps_of(key) or (key,)


def _keys(path):
    """Return the keys of a path, without list indices and the keys of a sweep."""
    names = (step for step in path if not (isinstance(step, int) or step.isdigit()))
    return tuple(itertools.dropwhile(_SWEEP_KEYS.__contains__, names))
