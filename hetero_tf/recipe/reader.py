"""Parses YAML text into Nodes: limited size, YAML 1.2 scalars and three tags.

The tree is built from PyYAML's parse events, so depth, aliases and sizes are checked before memory is used, and no
YAML value can create a Python object.
"""

import functools
import math
import re
from collections.abc import Mapping
from typing import Any

import yaml
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from hetero_tf.base.constraints import LARGEST_SIZE
from hetero_tf.base.errors import InputError
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import Node, Position, Setting, error_at, format_value

DEPTH = 50
NODES = 10_000
TOO_DEEP = f"nested too deeply; at most {DEPTH} levels are allowed"
TAGS = "allowed tags: `!w n`, `!classes` and `!setting name`"
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[0-9]{1,3})?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class _TreeReader(Reader, Scanner, Parser):
    """PyYAML's parser, whose events become Nodes; `path` is the path of the current value."""

    def __init__(self, text, label, is_file):
        self.lines, self.label, self.is_file = text.splitlines(), label, is_file
        self.path, self.count = [], 0
        if unreadable := _UNREADABLE.search(text):
            before = text[: unreadable.start()].splitlines() or [""]
            raise error_at(
                self.position(len(before) - 1, len(before[-1])),
                (),
                f"unreadable character U+{ord(unreadable.group()):04X}; a recipe must be plain text",
            )
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)

    def fetch_flow_collection_start(self, TokenClass):
        # The scanner reads ahead, and its time grows with the square of the depth.
        if self.flow_level > DEPTH:
            raise yaml.MarkedYAMLError(problem=TOO_DEEP, problem_mark=self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def scan_tag(self):
        # PyYAML would read `classes,` or `classes}` of `{units: !classes, ...}` as the name of the tag.
        start, word = self.get_mark(), ""
        self.forward()
        while self.peek() not in "\0 \t\r\n\x85\u2028\u2029,[]{}":
            word += self.peek()
            self.forward()
        return yaml.TagToken(("!", word), start, self.get_mark())

    def position(self, line, column, index=0):
        """Return the `Position` of a line and a column, both counted from 0."""
        if not self.is_file:
            return Position(self.label)
        text = self.lines[line] if line < len(self.lines) else ""
        return Position(f"{self.label}:{line + 1}:{column + 1}", text.replace("\t", " "), column, index)

    def error(self, mark, text):
        """Return the error at a mark, with the path of the current value."""
        return error_at(self.position(mark.line, mark.column), tuple(self.path), text)

    def document(self):
        """Return the only document as a Node."""
        self.get_event()
        if self.check_event(yaml.StreamEndEvent):
            raise error_at(self.position(0, 0), (), "the recipe is empty; expected keys and values")
        self.get_event()
        root = self.node()
        self.get_event()
        if not self.check_event(yaml.StreamEndEvent):
            mark = self.peek_event().start_mark
            raise self.error(mark, "a second document starts here; a recipe must be a single document")
        return root

    def next_event(self):
        """Return the event of the next key or value, and its position."""
        event = self.get_event()
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise self.error(
                mark, f"anchors (&) and aliases (*) are not allowed; repeat the value. Received: {event.anchor[:40]}"
            )
        self.count += 1
        if self.count > NODES:
            raise self.error(mark, f"too many values; at most {NODES} are allowed")
        return event, self.position(mark.line, mark.column, mark.index)

    def node(self, key_position=None):
        """Return the next value."""
        event, position = self.next_event()
        if isinstance(event, yaml.ScalarEvent):
            return Node(self.scalar(event), position, key_position)
        if event.tag is not None:
            raise self.error(
                event.start_mark, f"lists and mappings cannot have a tag; {TAGS}. Received: {event.tag[:40]}"
            )
        if len(self.path) == DEPTH:
            raise self.error(event.start_mark, TOO_DEEP)
        value = self.mapping() if isinstance(event, yaml.MappingStartEvent) else self.sequence()
        self.get_event()
        return Node(value, position, key_position)

    def sequence(self):
        """Return the items of a list."""
        items = []
        self.path.append(0)
        while not self.check_event(yaml.SequenceEndEvent):
            items.append(self.node())
            self.path[-1] += 1
        self.path.pop()
        return items

    def mapping(self):
        """Return the keys and values of a mapping."""
        value: dict[str, Node] = {}
        while not self.check_event(yaml.MappingEndEvent):
            event, position = self.next_event()
            if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
                raise self.error(event.start_mark, "a key must be plain text without a tag")
            key = event.value
            if key == "<<":
                raise self.error(event.start_mark, "merge keys (<<) are not allowed; repeat the keys")
            if key in value:
                first = value[key].key_position
                assert first is not None  # `node` has stored it
                line = f" on line {first.label.split(':')[-2]}" if self.is_file else ""
                raise self.error(event.start_mark, f"the key {format_value(key)} occurs twice, first{line}")
            self.path.append(key)
            value[key] = self.node(position)
            self.path.pop()
        return value

    def scalar(self, event):
        """Return the value of one scalar."""
        if event.tag is not None:
            return self.tagged(event, event.tag, event.value)
        return self.resolve(event, event.value) if event.implicit[0] else event.value

    def resolve(self, event, text):
        """Resolve an untagged plain scalar by the YAML 1.2 core schema, without octal and hexadecimal numbers."""
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_FINITE.fullmatch(text):
            raise self.error(event.start_mark, f"not a finite number; numbers must be finite. Received: {text}")
        if not (_INT.fullmatch(text) or (_FLOAT.fullmatch(text) and not text.isdigit())):
            return text
        if not math.isfinite(float(text)):
            raise self.error(event.start_mark, f"number too large; numbers must be finite. Received: {text[:40]}")
        return int(text) if _INT.fullmatch(text) else float(text)

    def tagged(self, event, tag, text):
        """Return the value of a scalar with one of the three tags."""
        if tag == "!w":
            if not re.fullmatch("[1-9][0-9]{0,6}", text) or int(text) > LARGEST_SIZE:
                raise self.error(
                    event.start_mark,
                    f"`!w` needs a whole number from 1 to {LARGEST_SIZE}. Received: {format_value(text)}",
                )
            return Width(int(text))
        if tag == "!classes" and text == "":
            return Classes()
        if tag == "!setting" and _SETTING.fullmatch(text):
            return Setting(text)
        known = tag in ("!classes", "!setting")
        wrong = f"invalid value of `{tag}`" if known else f"unknown tag {format_value(tag)}"
        raise self.error(event.start_mark, f"{wrong}; {TAGS}. Received: {format_value(text)}")


def parse(text: str, label: str, is_file: bool = True) -> Node:
    """Parse YAML text into a Node.

    Args:
        label: File name, or `--set path=value` of an override.
        is_file: Add line and column to error messages.

    Raises:
        InputError: The text is not YAML, or uses YAML features that recipes do not allow.
    """
    reader = _TreeReader(text, label, is_file)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        hint = "; indent with spaces, not with tabs" if "'\\t'" in str(error.problem) else ""
        raise reader.error(mark, f"not valid YAML: {error.problem or error.context}{hint}") from None


def from_plain(value: Any) -> Node:
    """Return a plain value as a Node; a text that begins with a tag, such as "!w 8" or "!classes", is that tag.

    Raises:
        InputError: A recipe cannot have the value.
    """
    position = Position("recipe")
    if isinstance(value, Mapping):
        return Node({str(key): from_plain(child) for key, child in value.items()}, position)
    if isinstance(value, list | tuple):
        return Node(list(map(from_plain, value)), position)
    if isinstance(value, str) and value.partition(" ")[0] in ("!w", "!classes", "!setting"):
        return parse(value, position.label, is_file=False)
    if value is not None and type(value) not in (str, int, float, bool):
        raise InputError(
            "a recipe may contain only numbers, texts, lists, tuples and mappings; pass functions as arguments of "
            f"learning_process, such as loss=. Received: {type(value).__name__}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise error_at(position, (), f"not a finite number; numbers must be finite. Received: {value}")
    return Node(value, position)


# A sweep reads the same few files for each of its runs, and a listing all shipped ones.
@functools.lru_cache(maxsize=256)
def parse_file(text: str, label: str) -> Node:
    """Parse the text of a file, see `parse`; equal texts share one tree, which stays unchanged."""
    return parse(text, label)
