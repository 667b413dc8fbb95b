"""Layers that a recipe may use: their arguments, shapes and weight counts, checked without Keras.

Shapes have no batch axis: (rows, columns, channels) of a feature map, (positions, channels) of a sequence,
(channels,) of a vector, (positions,) of token ids. A size that only the data define is None before they are read; a
shape of unknown rank is (..., channels). Layers declare their shapes by formulas, see `Geometry`.
"""

import ast
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import EllipsisType
from typing import Any

from hetero_tf.base import constraints, registry
from hetero_tf.base.constraints import REQUIRED, Option, parse_annotation
from hetero_tf.base.errors import InputError, did_you_mean, find_nearest
from hetero_tf.base.files import read_rows, read_table
from hetero_tf.recipe.model import Classes, LayerSpec, Model, Width
from hetero_tf.recipe.nodes import InvalidValue, format_value, raise_first
from hetero_tf.recipe.schema import Recipe

Shape = tuple[int | Width | Classes | EllipsisType | None, ...]

UNKNOWN: Shape = (..., None)
# Names of the sizes of an input, by its form.
FORMS = {
    "map": ("rows", "columns", "channels"),
    "tokens": ("positions", "channels"),
    "vector": ("channels",),
    "words": ("positions",),
}


@dataclass(frozen=True)
class Geometry:
    """Shapes and sizes of a layer: its class attribute `GEOMETRY`, see `hetero_tf.layers`.

    Attributes:
        inputs: Form that the layer requires of its input, a key of `FORMS`; "": any.
        weights: Formula of the entries of kernels and tables, without vectors such as biases and norms.
        hidden: Formula of the number of intermediate values between input and output.
        groups: Formula of a number that must divide the channels of input and output.
        groups_inputs: Whether the groups divide the channels of the input too.
        tile: Argument that must divide the rows and columns of the input; "": none.
        attends: Whether the layer reads several positions, without a mask.
    """

    inputs: str = ""
    outputs: str = "(..., None)"
    weights: str = "0"
    hidden: str = "0"
    groups: str = "1"
    groups_inputs: bool = True
    tile: str = ""
    attends: bool = False


@dataclass(frozen=True)
class KerasLayer(Geometry):
    """A layer of Keras.

    Attributes:
        arguments: Annotation, in the names of `constraints`, and default of each argument.
    """

    arguments: str = ""


# Layers of this package and of plug-ins are read from their source instead, see `registry`.
KERAS_LAYERS = read_table(Path(__file__).with_name("keras_layers.csv"), KerasLayer)
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


def layer_options(name: str) -> dict[str, Option]:
    """Return the arguments of an allowed layer by name."""
    return registry.options("layers", name) if name in registry.names("layers") else _keras_options(name)


@functools.cache
def _keras_options(name):
    options = {}
    for node in ast.parse(KERAS_LAYERS[name].arguments).body:
        assert isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        default = REQUIRED if node.value is None else ast.literal_eval(node.value)
        constraint = parse_annotation(node.annotation, Path(constraints.__file__))
        options[node.target.id] = Option(node.target.id, constraint, default, "")
    return options


@dataclass(frozen=True)
class ShapeStep:
    """One layer of a model for one example.

    Attributes:
        inputs, outputs: Shapes of its input and its output.
        weights, hidden, groups: Values of the formulas of `geometry`; None if they depend on an unknown size.
    """

    spec: LayerSpec
    geometry: Geometry
    inputs: Shape
    outputs: Shape
    weights: int | None
    hidden: int | None
    groups: int | None


def walk(model: Model, example: Shape, width: float | None = None, classes: int | None = None) -> Iterator[ShapeStep]:
    """Trace the shape of one example through all layers of a model, including exits.

    Args:
        width: Width of the model, in (0, 1]. If None, `!w` and `!classes` in shapes are unknown to formulas.
        classes: Length of the label axis; None before the data are read.

    Raises:
        InputError: The `GEOMETRY` of a layer is invalid.
    """
    reached: dict[int | None, Shape] = {None: example}
    for spec in model.layers:
        # A branch starts from the current output of the trunk.
        layer_step = step(spec, reached.get(spec.exit, reached[None]), width, classes)
        reached[spec.exit] = layer_step.outputs
        yield layer_step


def step(spec: LayerSpec, inputs: Shape, width: float | None = None, classes: int | None = None) -> ShapeStep:
    """Return the step of one layer for an input shape; see `walk`."""
    geometry = geometry_of(spec.kind)
    if geometry == Geometry():
        return ShapeStep(spec, geometry, inputs, UNKNOWN, None, None, None)
    try:
        values = _sizes(FORMS[geometry.inputs or "vector"], inputs) | _arguments(spec, width, classes)
        values["outputs"] = outputs = _evaluate(_parse(geometry.outputs), values)
        numbers = (geometry.weights, geometry.hidden, geometry.groups)
        return ShapeStep(spec, geometry, inputs, outputs, *(_evaluate(_parse(formula), values) for formula in numbers))
    except (ArithmeticError, LookupError, SyntaxError, TypeError) as error:
        raise _invalid(spec.kind, error) from None


def geometry_of(kind: str) -> Geometry:
    """Return the geometry of a layer; a plug-in without `GEOMETRY` has an unknown output.

    Raises:
        InputError: `GEOMETRY` is not a dictionary of the attributes of `Geometry`.
    """
    if kind in KERAS_LAYERS:
        return KERAS_LAYERS[kind]
    declared = registry.constant("layers", kind, "GEOMETRY") if kind in registry.names("layers") else None
    try:
        return Geometry(**(declared or {}))
    except TypeError as error:
        raise _invalid(kind, error) from None


def _invalid(kind, error):
    return InputError(
        f"GEOMETRY of {kind} must be a dictionary with some of the keys {', '.join(asdict(Geometry()))}: `inputs` one "
        f"of {', '.join(FORMS)}, and formulas of sizes and arguments (see hetero_tf/layers/__init__.py). Received: "
        f"{registry.constant('layers', kind, 'GEOMETRY')}, which leads to {type(error).__name__}: {error}"
    )


def _sizes(names, inputs):
    """Return the sizes of an input by name; all but the last one are None if its rank is another one or unknown."""
    is_known = len(inputs) == len(names) and ... not in inputs
    sizes = inputs if is_known else (*[None] * (len(names) - 1), inputs[-1])
    return {**dict(zip(names, sizes)), "inputs": inputs, "leading": inputs[:-1]}


def _arguments(spec, width, classes):
    """Return the arguments of a layer with its defaults; pairs always have two numbers."""
    options = layer_options(spec.kind)
    arguments = {name: option.default for name, option in options.items()} | spec.args
    for name, option in options.items():
        if option.constraint.type == "pair" and isinstance(arguments[name], int):
            arguments[name] = (arguments[name],) * 2
    return {name: value if width is None else size_at(value, width, classes) for name, value in arguments.items()}


def size_at(value: Any, width: float, classes: int | None = None) -> Any:
    """Return a value of a recipe at one width, with `!w` and `!classes` as numbers."""
    return value.at(width) if isinstance(value, Width) else classes if value == Classes() else value


@functools.lru_cache
def _parse(formula):
    return ast.parse(formula, mode="eval").body


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def _evaluate(formula: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return the value of a formula; None if it depends on an unknown size."""

    def value_of(node):
        return _evaluate(node, values)

    match formula:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.Tuple(elts=[ast.Starred(value=leading), *items]):
            return (*value_of(leading), *map(value_of, items))
        case ast.Tuple(elts=items):
            return tuple(map(value_of, items))
        case ast.Subscript(value=items, slice=index):
            return value_of(items)[value_of(index)]
        case ast.Call(func=ast.Name(id="product"), args=[shape]):
            # The product of a single size is the size itself, which may be `!w` or `!classes`.
            return functools.reduce(lambda first, second: _apply(operator.mul, first, second), value_of(shape))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _apply(operator.neg, value_of(operand))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATORS:
            return _apply(_OPERATORS[type(operation)], value_of(left), value_of(right))
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as operation], comparators=[right]):
            return (value_of(left) == value_of(right)) == isinstance(operation, ast.Eq)
        case ast.BoolOp(op=ast.Or(), values=[first, second]):
            return value_of(first) or value_of(second)
        case ast.IfExp(test=test, body=body, orelse=other):
            return value_of(body if value_of(test) else other)
    raise TypeError(f"{ast.unparse(formula)} is not allowed")


def _apply(operation, *operands):
    return operation(*operands) if all(isinstance(operand, int) for operand in operands) else None


_RANKS = {3: "a feature map", 2: "a sequence", 1: "a vector"}
# Advice for a layer that needs an input with as many axes.
_FORM_ADVICE = {
    3: "use it for images, before PatchEmbedding, pooling and Flatten",
    2: "use it for sequences, or between PatchEmbedding and pooling; LSTM and GRU need `return_sequences`",
    1: "use it after pooling or Flatten",
}
# Axes of the outputs by the form of the targets; 1 for others.
_OUTPUT_RANKS = {"positions": 2, "label_map": 3}
MOST_WEIGHTS = 2**31


def check_shapes(recipe: Recipe) -> None:
    """Raise `InvalidValue` if a layer cannot follow the one before it, as far as this is known without the data."""
    specs = recipe.model.layers
    if all(spec.exit is not None for spec in specs):
        reason = "every layer is inside an Exit; add layers outside, from which exits branch off"
        raise InvalidValue(
            ("model", "layers"), reason if specs else "the model has no layers; a Repeat with times: 0 adds none"
        )
    form = _input_constant(recipe, "FORM")
    raise_first(_unfit_embeddings(specs, form == "words", recipe.targets == "positions"))
    example: Shape = UNKNOWN if form is None else (None,) * len(FORMS[form])
    branches: dict[int | None, list[ShapeStep]] = {}
    for step, widest in zip(check_steps(recipe, walk(recipe.model, example)), walk(recipe.model, example, width=1.0)):
        branches.setdefault(step.spec.exit, []).append(step)
        if (widest.weights or 0) > MOST_WEIGHTS:
            sizes = f"{format_value(step.outputs[-1])} after {format_value(step.inputs[-1])}"
            text = f"{widest.weights} weights in one layer; at most {MOST_WEIGHTS} are allowed. Received: {sizes}"
            raise InvalidValue(step.spec.path, text)
    for exit in sorted(branches, key=lambda exit: exit is None):
        raise_first(_unfit_outputs(branches[exit], recipe.targets))


def _input_constant(recipe, name):
    return registry.constant("inputs", recipe.input.name, name)


def check_steps(recipe: Recipe, steps: Iterable[ShapeStep]) -> Iterator[ShapeStep]:
    """Yield the steps of `geometry.walk`; raise `InvalidValue` at a layer that cannot process its input."""
    for step in steps:
        raise_first(_unfit_form(recipe, step))
        raise_first(_unfit_sizes(recipe.levels, step))
        yield step


def _unfit_form(recipe, step):
    """Yield violations of the form of a layer's input, and of the positions that a text model keeps."""
    path, kind, hidden = step.spec.path, step.spec.kind, _input_constant(recipe, "HIDDEN")
    rank, required = len(step.inputs), len(FORMS.get(step.geometry.inputs, step.inputs))
    if ... not in step.inputs and rank != required:
        yield path, f"{kind} needs {_RANKS[required]}, but its input is {_RANKS[rank]}; {_FORM_ADVICE[required]}"
    if recipe.targets == "positions" and len(step.outputs) == 1:
        reason = "reduces all positions to one vector, but a text model returns logits for every position"
        yield path, f"{kind} {reason}; remove it, or set `return_sequences: true`"
    if hidden and step.geometry.attends:
        reason = f"reads several positions, so with the input {recipe.input.name} it would see {hidden}"
        yield path, f"{kind} {reason}; use LSTM or GRU"
    if kind == "Flatten" and rank > 1 and isinstance(step.inputs[-1], Width):
        reason = "with `!w` channels mixes positions and channels, so the weights of narrow levels would not match"
        yield path, f"Flatten of {_RANKS[rank]} {reason}; use GlobalAveragePooling{rank - 1}D"


def _unfit_sizes(levels, step):
    """Yield violations of the sizes of a layer: groups, strides with dilation, which Keras lacks, tiles and outputs."""
    spec, lengths, groups = step.spec, step.inputs[:-1], step.groups
    for level, size in itertools.product(
        levels.names, (*step.inputs[-1:] * step.geometry.groups_inputs, step.outputs[-1])
    ):
        count = size_at(size, levels.widths[level])
        if count is not None and groups and count % groups:
            channels = f"the {count} channel{'s' * (count > 1)} of level {level!r} (width {levels.widths[level]:g})"
            advice = f"choose channels that are a multiple of {groups} at every level, or another norm"
            yield spec.path, f"{groups} groups do not divide {channels}; {advice}", size
    both = {name: spec.args.get(name, 1) for name in ("strides", "dilation_rate")}
    if all(value not in (1, (1, 1)) for value in both.values()):
        yield spec.path, f"{spec.kind} cannot combine strides above 1 with dilation_rate above 1", both
    pixels, tile = " x ".join(map(str, lengths)), spec.args.get(step.geometry.tile)
    if tile and any(isinstance(length, int) and length % tile for length in lengths):
        yield (*spec.path, step.geometry.tile), f"must divide the {pixels} pixels of the input", tile
    if any(isinstance(size, int) and size < 1 for size in step.outputs):
        unit = "positions" if len(lengths) == 1 else "pixels"
        advice = "use a smaller window, `padding: same`, less cropping, or less pooling before it"
        yield spec.path, f"{spec.kind} has no output for an input of {pixels} {unit}; {advice}", spec.args


def _unfit_outputs(branch, targets):
    """Yield the violation of a branch that does not end with one output per label: of an example, position or pixel."""
    last, name = branch[-1], "the model" if branch[-1].spec.exit is None else "an Exit"
    rank = len(last.outputs)
    if ... in last.outputs or isinstance(last.outputs[-1], Classes) and rank == _OUTPUT_RANKS.get(targets, 1):
        return
    if not isinstance(last.outputs[-1], Classes):
        # Layers after the last one with a size, such as an activation, keep its channels.
        last = next((step for step in reversed(branch) if step.outputs[-1] is not step.inputs[-1]), last)
        reason = "must end with logits, so the size of its last layer must be `!classes`, one output per label"
        yield last.spec.path, f"{name} {reason}, such as `Dense: {{units: !classes}}`", last.outputs[-1]
    elif targets == "label_map":
        text = f"ends with {_RANKS[rank]}, but every pixel has a label; end with Conv2D of one pixel"
        yield last.spec.path, f"{name} {text}"
    else:
        advice = "Dense after pooling, Flatten, ClassTokenReadout, or an LSTM or GRU without `return_sequences`"
        yield last.spec.path, f"{name} ends with {_RANKS[rank]}, but every example has one label; end with {advice}"


def _unfit_embeddings(specs, has_words, text):
    """Yield violations of a model that does not begin with an embedding of words, or has another one."""
    first = specs[0]
    if has_words and geometry_of(first.kind).inputs != "words":
        yield first.path, f"words need an embedding as the first layer, such as Embedding. Received: {first.kind}"
    for name in {"classes", "words"} & first.args.keys() if has_words else ():
        value = first.args[name]
        if text and not isinstance(value, Classes):
            yield (*first.path, name), "must be `!classes`, one row per word of the vocabulary", value
        if not text and type(value) is not int:
            reason = "must be a number that is at least the vocabulary size, since `!classes` counts labels"
            yield (*first.path, name), reason, value
    for spec in specs[1:] if has_words else specs:
        if geometry_of(spec.kind).inputs == "words":
            yield spec.path, f"{spec.kind} needs token ids as input, so it must be the first layer of a text model"
