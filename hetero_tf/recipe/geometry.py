"""Traces shapes and weight counts through the layers of a model, without Keras.

Shapes have no batch axis: (rows, columns, channels) of a feature map, (positions, channels) of a sequence,
(channels,) of a vector, (positions,) of token ids. A size that only the data define is None before they are read; a
shape of unknown rank is (..., channels). Layers declare their shapes by formulas, see `Geometry`.
"""

import ast
import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import EllipsisType
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.recipe import layer_table
from hetero_tf.recipe.model import Classes, LayerSpec, Model, Width

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
        example: Shape of one input.
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
    if kind in layer_table.KERAS_LAYERS:
        return _KERAS.get(kind, Geometry(outputs="inputs"))
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
    options = layer_table.options(spec.kind)
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


def _window(size, strides="strides", dilation="(1, 1)"):
    """Return the formulas of rows and columns of the output of a sliding window."""
    return ", ".join(
        f"-(-{length} // ({strides})[{axis}]) if padding == 'same' else "
        f"({length} - ({size}[{axis}] - 1) * {dilation}[{axis}] - 1) // ({strides})[{axis}] + 1"
        for axis, length in enumerate(("rows", "columns"))
    )


_KERNEL = "kernel_size[0] * kernel_size[1] * channels"
_POOLING = Geometry("map", f"({_window('pool_size', 'strides or pool_size')}, channels)")
_GLOBAL_POOLING = Geometry("map", "(channels,)")


def _windows(size, strides="strides", dilation="1"):
    """Return the formula of the positions of the output of a window that slides over a sequence."""
    valid = f"(positions - ({size} - 1) * {dilation} - 1) // ({strides}) + 1"
    return f"{valid} if padding == 'valid' else -(-positions // ({strides}))"


_POOLING_1D = Geometry("tokens", f"({_windows('pool_size', 'strides or pool_size')}, channels)", attends=True)
_GLOBAL_POOLING_1D = Geometry("tokens", "(channels,)", attends=True)
# Layers of Keras that change the shape, require a form or have kernels.
_KERAS = {
    "AveragePooling1D": _POOLING_1D,
    "AveragePooling2D": _POOLING,
    "Conv1D": Geometry(
        "tokens",
        f"({_windows('kernel_size', dilation='dilation_rate')}, filters)",
        "kernel_size * channels * filters",
        attends=True,
    ),
    "Conv2D": Geometry("map", f"({_window('kernel_size', dilation='dilation_rate')}, filters)", f"{_KERNEL} * filters"),
    "Cropping2D": Geometry("map", "(rows - 2 * cropping[0], columns - 2 * cropping[1], channels)"),
    "Dense": Geometry(outputs="(*leading, units)", weights="channels * units"),
    "DepthwiseConv2D": Geometry("map", f"({_window('kernel_size')}, channels)", _KERNEL),
    "Flatten": Geometry(outputs="(product(inputs),)"),
    "GlobalAveragePooling1D": _GLOBAL_POOLING_1D,
    "GlobalAveragePooling2D": _GLOBAL_POOLING,
    "GlobalMaxPooling1D": _GLOBAL_POOLING_1D,
    "GlobalMaxPooling2D": _GLOBAL_POOLING,
    "GroupNormalization": Geometry(outputs="inputs", groups="groups"),
    "MaxPooling1D": _POOLING_1D,
    "MaxPooling2D": _POOLING,
    "UpSampling2D": Geometry("map", "(rows * size[0], columns * size[1], channels)"),
    "ZeroPadding2D": Geometry("map", "(rows + 2 * padding[0], columns + 2 * padding[1], channels)"),
}
