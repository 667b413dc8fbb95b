"""Values of a recipe with the position at which each was written, and refusals that point there."""

from dataclasses import dataclass
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.recipe.model import Classes, Width

FRAME = 110


@dataclass(frozen=True)
class Position:
    """Where something was written: `label` is file:line:column or the override; `line` is None for an override."""

    label: str
    line: str | None = None
    column: int = 0

    @property
    def in_file(self) -> bool:
        """Whether it is in a file, not in an override."""
        return self.line is not None

    def frame(self) -> str:
        """Returns the line and below it a caret under the column; nothing for an override."""
        if self.line is None:
            return ""
        start = max(0, self.column - FRAME // 2) if len(self.line) > FRAME else 0
        return f"\n{self.line[start : start + FRAME]}\n{' ' * (self.column - start)}^"


@dataclass(frozen=True)
class Setting:
    """`!setting name` or `!setting name.0`: stands for a value of `model.settings`."""

    name: str


@dataclass(frozen=True)
class Node:
    """A dict or list of Nodes, or one value; `key_position` is where the key before it stands."""

    value: Any
    position: Position
    key_position: Position | None = None


class InvalidValue(InputError):
    """A value is not allowed: its path, what is wrong and what is allowed; `at_key` points to the key instead."""

    def __init__(self, path: tuple, text: str, at_key: bool = False):
        super().__init__(f"{dotted(path)}: {text}")
        self.path = path
        self.text = text
        self.at_key = at_key


def dotted(path: tuple) -> str:
    """Writes `("model", "layers", 0)` as `model.layers[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def refusal(position: Position, path: tuple, text: str) -> InputError:
    """Returns the `InputError` that names position and path and shows the line."""
    where = f"{dotted(path)}: " if path else ""
    return InputError(f"{position.label}: {where}{text}{position.frame()}")


def locate(root: Node, path: tuple, at_key: bool = False) -> Position:
    """Returns the position of the value at `path`, or of what stands nearest above it."""
    position = root.position
    for index, step in enumerate(path):
        inside = isinstance(root.value, dict) and step in root.value
        inside = inside or (isinstance(root.value, list) and isinstance(step, int) and step < len(root.value))
        if not inside:
            break
        root = root.value[step]
        last = index == len(path) - 1
        position = root.key_position if last and at_key and root.key_position else root.position
    return position


def plain(node: Node) -> Any:
    """Returns the value of a tree without positions."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def show(value: Any) -> str:
    """Writes a value as in a recipe, cut to 80 characters."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, Width):
        text = f"!w {value.size}"
    elif isinstance(value, Classes):
        text = "!classes"
    elif isinstance(value, Setting):
        text = f"!setting {value.name}"
    elif isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {show(child)}" for key, child in list(value.items())[:9]) + "}"
    elif isinstance(value, (list, tuple)):
        text = "[" + ", ".join(show(child) for child in value[:20]) + "]"
    else:
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
