"""Layers that a recipe may use, with annotation and default of every argument; all others are rejected.

`keras_layers.csv` lists those of Keras. `registry` reads the layers of this package and of plug-ins from their source.
"""

import ast
import functools
from pathlib import Path

from hetero_tf.base import constraints, registry
from hetero_tf.base.constraints import REQUIRED, Option, parse_annotation
from hetero_tf.base.errors import did_you_mean, find_nearest
from hetero_tf.base.files import read_rows
from hetero_tf.recipe.nodes import format_value

# Arguments and shapes of the layers of Keras; arguments are annotated by the names of `constraints`.
KERAS_LAYERS = {row.pop("name"): row for row in read_rows(Path(__file__).with_name("keras_layers.csv"))}
# {layer: what to use instead}
ADVICE = {
    name: row["advice"]
    for row in read_rows(Path(__file__).with_name("rejected_layers.csv"))
    for name in row["layers"].split()
}


def known_layers() -> list[str]:
    """Return the names of all layers that a recipe may use, sorted."""
    return sorted({*KERAS_LAYERS, *registry.names("layers")})


def rejection_reason(name: str) -> str | None:
    """Explain why `name` is not an allowed layer; return None if it is one."""
    if name in known_layers():
        return None
    if name in ADVICE:
        return f"{name} is not allowed; {ADVICE[name]}"
    if "." in name or ":" in name:
        return f"{format_value(name)} is not a layer; write the class name only, and load custom layers with --plugin"
    near = find_nearest(name, known_layers())
    advice = "" if near else "; load a custom layer with --plugin (BUILD.md, Add a part)"
    return f"unknown layer {format_value(name)}{advice}{did_you_mean(name, known_layers())}"


def options(name: str) -> dict[str, Option]:
    """Return the arguments of an allowed layer by name."""
    return registry.options("layers", name) if name in registry.names("layers") else _keras_options(name)


@functools.cache
def _keras_options(name):
    options = {}
    for node in ast.parse(KERAS_LAYERS[name]["arguments"]).body:
        assert isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        default = REQUIRED if node.value is None else ast.literal_eval(node.value)
        constraint = parse_annotation(node.annotation, Path(constraints.__file__))
        options[node.target.id] = Option(node.target.id, constraint, default, "")
    return options
