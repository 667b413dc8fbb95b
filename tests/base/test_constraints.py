"""Annotations become constraints, and sections list their keys."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from hetero_tf.base.constraints import (
    REQUIRED,
    Constraint,
    Kind,
    Plugin,
    Range,
    Share,
    Text,
    inline_plugin,
    keys,
    read_annotation,
    walk_keys,
)

ANNOTATIONS = [
    (bool, Constraint("bool")),
    (str | None, Constraint("str", optional=True)),
    (Literal[1, 3], Constraint("int", choices=(1, 3))),
    (Annotated[Share, Range(high=0.5)], Constraint("float", low=0.0, below=1.0, high=0.5)),
    (tuple[Share, ...], Constraint("tuple", item=Constraint("float", low=0.0, below=1.0))),
    (Annotated[str, Text(pattern="[a-z]")], Constraint("str", pattern="[a-z]")),
    (Annotated[dict[str, int], Text(choices=("x",))], Constraint("dict", item=Constraint("int"), choices=("x",))),
    (int | dict[str, int], Constraint("int", by_level=True)),
    (Annotated[int | tuple[int, int], Range(low=1)] | None, Constraint("pair", optional=True, low=1)),
    (Annotated[Plugin, Kind("masks")] | None, Constraint("plugin", optional=True, kind="masks")),
]


@pytest.mark.parametrize(("annotation", "constraint"), ANNOTATIONS, ids=str)
def test_annotations_become_constraints(annotation, constraint):
    assert read_annotation(annotation) == constraint


@pytest.mark.parametrize("annotation", [Any, list[int], tuple[int, str], int | float, Literal["a", 1], dict[int, int]])
def test_other_annotations_are_rejected(annotation):
    with pytest.raises(TypeError):
        read_annotation(annotation)


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A section whose plug-in shares the mapping with its keys.

    Args:
        rate: share of
            something
    """

    method: Annotated[Plugin, Kind("optimizers")] = Plugin("sgd")
    rate: Share


@dataclass(frozen=True, kw_only=True)
class Outer:
    """A section.

    Args:
        inner: keys of the plug-in
        count: a number
        first: an index
        names: by level

    Attributes:
        path: no key
    """

    inner: Inner
    count: int
    first: int = 0
    names: dict[str, int] = field(default_factory=dict)
    path: str = ""


def test_documented_fields_are_keys():
    assert [".".join(path) for path, _ in walk_keys(Outer)] == ["inner", "inner.rate", "count", "first", "names"]
    rate, count, first = keys(Inner)["rate"], keys(Outer)["count"], keys(Outer)["first"]
    assert (rate.doc, rate.required, rate.default) == ("share of something", True, REQUIRED)
    assert (count.constraint, first.constraint) == (Constraint("int", low=1), Constraint("int", low=0))
    assert keys(Outer)["inner"].is_section and keys(Outer)["names"].default == {}
    plugin = inline_plugin(Inner)
    assert plugin.name == "method" and plugin.is_plugin and plugin.constraint.kind == "optimizers"
    assert inline_plugin(Outer) is None
