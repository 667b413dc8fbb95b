"""Parses YAML text into Nodes: limited size, YAML 1.2 scalars and three tags.

The tree is built from PyYAML's parse events, so depth, aliases and sizes are checked before memory is used, and no
YAML value can create a Python object.
"""

import math
import re

import yaml
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.scanner import Scanner

from hetero_tf.base.constraints import LARGEST_SIZE
from hetero_tf.recipe.model import Classes, Width
from hetero_tf.recipe.nodes import Node, Position, Setting, error_at, format_value

DEPTH = 50
NODES = 10_000
TOO_DEEP = f"nested too deeply; at most {DEPTH} levels are allowed"
DIGITS = 300
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


class _Events(Reader, Scanner, Parser):
    """PyYAML's parser without composition."""

    def __init__(self, text):
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


class _Tree:
    """Open collections, innermost last, each `[node, key or index of the current child, position of the key]`."""

    def __init__(self, text, label, is_file):
        self.lines = text.splitlines()
        self.label = label
        self.is_file = is_file
        self.open = []
        self.root = None
        self.count = 0

    def position(self, line, column, index=0):
        """Return the `Position` of a line and a column, both counted from 0."""
        if not self.is_file:
            return Position(self.label)
        text = self.lines[line] if line < len(self.lines) else ""
        return Position(f"{self.label}:{line + 1}:{column + 1}", text.replace("\t", " "), column, index)

    def error(self, mark, text):
        """Return the error at a mark, with the path of the current value."""
        path = tuple(key for _, key, _ in self.open if key is not None)
        return error_at(self.position(mark.line, mark.column), path, text)

    def add_event(self, event):
        """Add one event; raise an error for YAML that recipes do not allow."""
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self.error(
                event.start_mark,
                f"anchors (&) and aliases (*) are not allowed; repeat the value. Received: {event.anchor[:40]}",
            )
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent, yaml.ScalarEvent)):
            self.start(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.add(self.open.pop()[0])
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise self.error(event.start_mark, "a second document starts here; a recipe must be a single document")

    def start(self, event):
        """Add a key, a value, or the start of a list or mapping."""
        self.count += 1
        if self.count > NODES:
            raise self.error(event.start_mark, f"too many values; at most {NODES} are allowed")
        mark = event.start_mark
        position = self.position(mark.line, mark.column, mark.index)
        if self.open and isinstance(self.open[-1][0].value, dict) and self.open[-1][1] is None:
            self.key(event, position)
        elif isinstance(event, yaml.ScalarEvent):
            self.add(Node(self.scalar(event), position))
        elif event.tag is not None:
            raise self.error(
                event.start_mark, f"lists and mappings cannot have a tag; {TAGS}. Received: {event.tag[:40]}"
            )
        elif len(self.open) == DEPTH:
            raise self.error(event.start_mark, TOO_DEEP)
        elif isinstance(event, yaml.MappingStartEvent):
            self.open.append([Node({}, position), None, None])
        else:
            self.open.append([Node([], position), 0, None])

    def key(self, event, position):
        """Store the key of the next value."""
        if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
            raise self.error(event.start_mark, "a key must be plain text without a tag")
        inside, key = self.open[-1][0].value, event.value
        if key == "<<":
            raise self.error(event.start_mark, "merge keys (<<) are not allowed; repeat the keys")
        if key in inside:
            first = inside[key].key_position.label.split(":")
            line = f" on line {first[-2]}" if self.is_file else ""
            raise self.error(event.start_mark, f"the key {format_value(key)} occurs twice, first{line}")
        self.open[-1][1:] = [key, position]

    def add(self, node):
        """Add a complete value to the innermost open list or mapping."""
        if not self.open:
            self.root = node
            return
        parent, key, key_position = self.open[-1]
        if isinstance(parent.value, dict):
            parent.value[key] = Node(node.value, node.position, key_position)
            self.open[-1][1] = None
        else:
            parent.value.append(node)
            self.open[-1][1] = key + 1

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
        if len(text) > DIGITS or not math.isfinite(float(text)):
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
        text: The YAML.
        label: File name, or `--set path=value` of an override.
        is_file: Add line and column to error messages.

    Raises:
        InputError: The text is not YAML, or uses YAML features that recipes do not allow.
    """
    tree = _Tree(text, label, is_file)
    unreadable = _UNREADABLE.search(text)
    if unreadable:
        before = text[: unreadable.start()].splitlines() or [""]
        raise error_at(
            tree.position(len(before) - 1, len(before[-1])),
            (),
            f"unreadable character U+{ord(unreadable.group()):04X}; a recipe must be plain text",
        )
    events = _Events(text)
    try:
        while events.check_event():
            tree.add_event(events.get_event())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        hint = "; indent with spaces, not with tabs" if "'\\t'" in str(error.problem) else ""
        raise tree.error(mark, f"not valid YAML: {error.problem or error.context}{hint}") from None
    if tree.root is None:
        raise error_at(tree.position(0, 0), (), "the recipe is empty; expected keys and values")
    return tree.root
