"""Values of a recipe with their source positions, and errors that point there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.recipe.model import Classes, Width

FRAME = 110
NOTHING = object()
MAX_PRINTED_ERRORS = 20


@dataclass(frozen=True)
class Position:
    """Source position.

    Attributes:
        label: file:line:column, or the override.
        line: Text of the line; None for an override.
        column: Column in the line, from 0.
        index: Offset in the text of the file.
    """

    label: str
    line: str | None = None
    column: int = 0
    index: int = 0

    @property
    def in_file(self) -> bool:
        """True for a position in a file, False for an override."""
        return self.line is not None

    def frame(self) -> str:
        """Return the line with a caret below the column; empty for an override."""
        if self.line is None:
            return ""
        start = max(0, self.column - FRAME // 2) if len(self.line) > FRAME else 0
        return f"\n{self.line[start : start + FRAME]}\n{' ' * (self.column - start)}^"


@dataclass(frozen=True)
class Setting:
    """`!setting name` or `!setting name.0`: a reference to a value of `model.settings`."""

    name: str


@dataclass(frozen=True)
class Node:
    """A dict or list of Nodes, or one value; `key_position` is the position of its key."""

    value: Any
    position: Position
    key_position: Position | None = None


class InvalidValue(InputError):
    """An invalid value: its path, the problem and the allowed values; `at_key` points to the key instead.

    The text ends with the received value, if there is one.
    """

    def __init__(self, path: tuple, text: str, received: Any = NOTHING, at_key: bool = False):
        text = text if received is NOTHING else f"{text}. Received: {format_value(received)}"
        super().__init__(f"{dotted(path)}: {text}")
        self.path = path
        self.text = text
        self.at_key = at_key


def raise_first(violations: Iterable[tuple]) -> None:
    """Raise `InvalidValue` for the first violation, if any: its path, text, and received value if there is one."""
    for violation in violations:
        raise InvalidValue(*violation)


class InvalidValues(InputError):
    """Several invalid values; `errors` has an `InvalidValue` for each."""

    def __init__(self, errors: Sequence[InvalidValue]):
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


class ErrorList(list[InvalidValue]):
    """Collects the invalid values of several checks: each `with` block ends at its first error."""

    def __enter__(self) -> "ErrorList":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, InvalidValue):
            self.append(error)
        elif isinstance(error, InvalidValues):
            self += error.errors
        return isinstance(error, (InvalidValue, InvalidValues))

    def raise_all(self) -> None:
        """Raise `InvalidValue` or `InvalidValues` if there are errors."""
        if self:
            raise self[0] if len(self) == 1 else InvalidValues(self)


def dotted(path: tuple) -> str:
    """Format `("model", "layers", 0)` as `model.layers[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def error_at(position: Position, path: tuple, text: str) -> InputError:
    """Return an `InputError` with position, path, text and the source line."""
    key = f"{dotted(path)}: " if path else ""
    return InputError(f"{position.label}: {key}{text}{position.frame()}")


def join_errors(name: str, errors: Sequence[InputError]) -> InputError:
    """Return one `InputError` for the errors of a recipe; neighbours at one position share their source line.

    Args:
        name: Name of the recipe in the message.
        errors: At least one error, see `error_at`.
    """
    if len(errors) == 1:
        return errors[0]
    lines, previous = [], None
    for error in reversed(errors[:MAX_PRINTED_ERRORS]):
        text, _, frame = str(error).partition("\n")
        position = (text.partition(": ")[0], frame)
        lines.append(text if position == previous or not frame else f"{text}\n{frame}")
        previous = position
    more = len(errors) - MAX_PRINTED_ERRORS
    remaining = [f"... and {more} more"] if more > 0 else []
    return InputError("\n".join([f"{name}: {len(errors)} errors", *reversed(lines), *remaining]))


def locate(root: Node, path: tuple, at_key: bool = False) -> Position:
    """Return the position of the value at `path`, or of its nearest existing parent.

    A value of a `!setting` is located where the setting is defined.
    """
    node, position = root, root.position
    for index, step in enumerate(path):
        inside = isinstance(node.value, dict) and step in node.value
        inside = inside or (isinstance(node.value, list) and isinstance(step, int) and step < len(node.value))
        if not inside:
            return position
        node = node.value[step]
        last = index == len(path) - 1
        position = node.key_position if last and at_key and node.key_position else node.position
    if isinstance(node.value, Setting) and not at_key:
        name, _, part = node.value.name.partition(".")
        return locate(root, ("model", "settings", name, *([int(part)] if part else [])))
    return position


def to_plain(node: Node) -> Any:
    """Return the value of a tree without positions."""
    if isinstance(node.value, dict):
        return {key: to_plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [to_plain(child) for child in node.value]
    return node.value


def format_value(value: Any) -> str:
    """Format a value as in a recipe, truncated to 80 characters."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, Width):
        text = f"!w {value.size}"
    elif isinstance(value, Classes):
        text = "!classes"
    elif isinstance(value, Setting):
        text = f"!setting {value.name}"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {format_value(child)}" for key, child in list(value.items())[:9]) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(format_value(child) for child in value[:20]) + "]"
    else:
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
