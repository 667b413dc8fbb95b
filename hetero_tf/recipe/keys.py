"""How the schema declares a key of a recipe, and what can be asked of one: its default, its plug-in, its range."""

import ast
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hetero_tf.base.annotations import constraint
from hetero_tf.base.constraints import Constraint


def key(
    doc: str,
    default: Any = None,
    required: bool = False,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    kind: str | None = None,
    pattern: str | None = None,
) -> Any:
    """A dataclass field with its meaning and allowed range.

    Args:
        doc: One line for a person.
        default: Used where the recipe leaves the key out (unless `required`).
        required: The recipe must give it.
        choices: Allowed strings.
        low, high: Inclusive bounds of a number.
        above, below: Exclusive bounds of a number.
        kind: Kind of a plug-in.
        pattern: Regular expression that text must match.
    """
    limits = {"choices": choices, "low": low, "high": high, "above": above, "below": below, "pattern": pattern}
    about = {"doc": doc, "required": required, "kind": kind, "limits": limits}
    if required:
        return field(metadata=about)
    return field(default_factory=dict, metadata=about) if default == {} else field(default=default, metadata=about)


def default_of(field: Field) -> object:
    """Returns the value of a key that a recipe leaves out."""
    return field.default if field.default_factory is MISSING else field.default_factory()


@dataclass(frozen=True)
class Plugin:
    """A plug-in by name with its own options: `{name: labels, clients: 100, per_client: 2}`."""

    name: str
    options: dict = field(default_factory=dict)


def is_plugin(field: Field) -> bool:
    """Tells whether a key holds a plug-in, or null where there need be none."""
    return field.type in (Plugin, Plugin | None)


def is_by_level(field: Field) -> bool:
    """Tells whether a key holds one value for all levels, or a mapping of level to value."""
    return str(field.type).endswith(" | dict")


def plugin_beside(cls: type) -> Field | None:
    """Returns the field of a section for the plug-in whose options stand beside its keys; None: it has none."""
    return next((field for field in fields(cls) if is_plugin(field) and "doc" not in field.metadata), None)


def keys(cls: type) -> dict[str, Field]:
    """Returns the fields of a section that are keys of a recipe, by name."""
    return {field.name: field for field in fields(cls) if "doc" in field.metadata}


def constraint_of(field: Field) -> Constraint:
    """Returns the `Constraint` of a field that holds one value, or one for each level in a mapping."""
    name = field.type.__name__ if isinstance(field.type, type) else str(field.type).removesuffix(" | dict")
    stated = constraint(ast.parse(name, mode="eval").body, Path(__file__))
    return replace(stated, **field.metadata["limits"])
