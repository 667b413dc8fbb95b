"""Counts the operations of one call of a Keras model, from a trace of it, without knowledge of its layers."""

import dataclasses
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.build_model import build_model
from hetero_tf.models.variables import all_layers, is_seed, layer_signature
from hetero_tf.recipe.schema import Recipe

# FeDepth trains with batches of 128, but its Table 1 follows from this one.
TABLE_BATCH = 32
VALUE_BYTES = 4
PRODUCTS = ("Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2", "Einsum")
# Their first two inputs are the iteration counter and the maximum number of iterations.
LOOPS = ("While", "StatelessWhile")
# Names of the axes of `...` in an einsum; equations use letters only.
_DIGITS = "0123456789"


@dataclass(frozen=True)
class ForwardCost:
    """Cost of one forward pass of one example, through a top-level layer of a model, a unit, or all layers.

    Attributes:
        name: Name of the layer or unit.
        elements: Output values that FeDepth's Table 1 counts, see `count_values`.
        multiply_adds: Multiply-adds of the products that actually run, see `multiply_adds`.
        by_constants: Those of them by constant kernels.
        products: Number of these products: convolutions and matrix products.
        paper_flops: In the convention of the HeteroFL paper, see `paper_flops`.
        activations: Output values of the innermost layers, most of the memory of backpropagation.
        weights: All values of the weights, frozen ones too.
        passed: The most input and output values of one call of a layer or sublayer.
    """

    name: str
    elements: int = 0
    parameters: int = 0
    multiply_adds: int = 0
    by_constants: int = 0
    products: int = 0
    paper_flops: int = 0
    activations: int = 0
    weights: int = 0
    passed: int = 0

    @property
    def prediction_values(self) -> int:
        """Values in memory during a prediction: all weights, and input and output of the largest layer."""
        return self.weights + self.passed

    def memory(self, batch: int) -> int:
        """Return the bytes of training memory with `batch` examples in a step, in the convention of FeDepth's Table 1.

        These are the layers' outputs for every example and their gradients, and the weights. The rule is derived from
        the published numbers and meant for shares of a full model; it does not bound the memory that TensorFlow
        allocates.
        """
        return VALUE_BYTES * (2 * batch * self.elements + self.parameters)

    def by(self, measure: str) -> int:
        """Return the amount that counts for a budget: bytes of memory with `TABLE_BATCH` examples, or multiply-adds."""
        return self.memory(TABLE_BATCH) if measure == "memory" else self.multiply_adds


def total(costs: Iterable[ForwardCost], name: str = "all") -> ForwardCost:
    """Return the cost of several layers or units together."""
    costs = tuple(costs)
    counts = [field.name for field in dataclasses.fields(ForwardCost) if field.name not in ("name", "passed")]
    sums = {count: sum(getattr(cost, count) for cost in costs) for count in counts}
    return ForwardCost(name, **sums, passed=max(cost.passed for cost in costs))


class Call(NamedTuple):
    """One call of a layer: its first argument and its result, each a tensor or a structure of tensors."""

    layer: keras.layers.Layer
    inputs: Any
    outputs: Any


def forward(model: keras.Model, example: tuple[int, ...]) -> tuple[ForwardCost, ...]:
    """Count one call of a model: the cost of each top-level layer, in the order in which they return.

    Equal layers with equal input shapes are called once. Operations inside a `tf.function` of a layer, or in a loop of
    an unknown number of iterations, are not counted.

    Args:
        model: A model; while it is traced, its layers record their calls.
        example: Shape of one input, without None.

    Raises:
        InputError: A layer or a product has a shape that is only known at run time.
    """
    # Calls of a top-level layer and of its sublayers, in the order in which they return; its own call is the last.
    calls: list[Call] = []
    recorded_by_signature: dict[Hashable, tuple] = {}
    top_calls: list[tuple] = []

    def recording(layer, call):
        def record(*args, **kwargs):
            outputs = call(*args, **kwargs)
            calls.append(Call(layer, args[0] if args else None, outputs))
            return outputs

        def record_top(*args, **kwargs):
            signature = layer_signature(layer), str(tf.nest.map_structure(_spec, (args, kwargs)))
            if signature not in recorded_by_signature:
                operations = tf.compat.v1.get_default_graph().get_operations
                before, outputs = len(operations()), record(*args, **kwargs)
                products = list(filter(None, map(multiply_adds, operations()[before:])))
                recorded_by_signature[signature] = outputs, tuple(calls), products
                calls.clear()
            outputs, *recorded = recorded_by_signature[signature]
            top_calls.append((layer, *recorded))
            return outputs

        return record_top if layer in model.layers else record

    layers = list(all_layers(model))
    instance_calls = {layer: layer.__dict__["call"] for layer in layers if "call" in layer.__dict__}
    for layer in layers:
        layer.call = recording(layer, layer.call)
    spec = tf.TensorSpec((1, *example), model.inputs[0].dtype)
    try:
        tf.function(lambda inputs: model(inputs, training=False), autograph=False).get_concrete_function(spec)
    finally:
        for layer in layers:
            del layer.call
            if layer in instance_calls:
                layer.call = instance_calls[layer]
    return tuple(_layer_cost(*recorded) for recorded in top_calls)


def _spec(argument):
    return (argument.shape, argument.dtype) if isinstance(argument, tf.Tensor) else argument


def _layer_cost(layer, calls, products):
    """Return the cost of a top-level layer; `products`: multiply-adds of each convolution and matrix product in it."""
    # The calls that map one tensor to one tensor.
    simple = [call for call in calls if isinstance(call.inputs, tf.Tensor) and isinstance(call.outputs, tf.Tensor)]
    shapes = [(each.layer, *(known_shape(x, each.layer.name) for x in (each.inputs, each.outputs))) for each in simple]
    return ForwardCost(
        layer.name,
        elements=_count_values(layer, calls),
        parameters=_size(layer.trainable_variables),
        multiply_adds=sum(products),
        by_constants=min(sum(map(_by_constants, calls)), sum(products)),
        products=len(products),
        paper_flops=sum(paper_flops(*of_call) for of_call in shapes),
        activations=sum(math.prod(outputs) for layer, _, outputs in shapes if not any(all_layers(layer))),
        weights=_size(variable for variable in layer.weights if not is_seed(variable)),
        passed=max(sum(_tensor_sizes((call.inputs, call.outputs), call)) for call in calls),
    )


def _size(variables):
    return sum(math.prod(variable.shape) for variable in variables)


def _tensor_sizes(tensors, call):
    return [math.prod(known_shape(x, call.layer.name)) for x in tf.nest.flatten(tensors) if isinstance(x, tf.Tensor)]


def _count_values(layer, calls):
    """Count the values that one call of a top-level layer keeps for one example.

    Outputs of layers with weights count, and outputs of composite layers if they are another tensor, as the sum of a
    residual block. Layers without weights (activations, pooling, Scaler) count nothing, and neither does a top-level
    layer whose weights are all vectors: the paper's total has no norm between the blocks.
    """
    if all(len(variable.shape) < 2 for variable in layer.trainable_variables):
        return 0
    seen, values = set(), 0
    for call in calls:
        for output in [each for each in tf.nest.flatten(call.outputs) if isinstance(each, tf.Tensor)]:
            if call.layer.trainable_variables and output.ref() not in seen:
                values += math.prod(known_shape(output, call.layer.name))
            seen.add(output.ref())
    return values


def _by_constants(call):
    """Return the multiply-adds of a layer's constant kernels: each meets every position of the output once."""
    fixed = [v for v in direct_weights(call.layer) if not v.trainable]
    # "a" is the first factor of `LowRank`.
    kernels = [v for v in fixed if v.name.endswith("kernel") or v.name == "a"]
    return math.prod(known_shape(call.outputs, call.layer.name)[:-1]) * _size(kernels) if kernels else 0


def known_shape(tensor: tf.Tensor, name: str) -> tuple[int, ...]:
    """Return the shape of a tensor and refuse one with a size that is only known at run time.

    `name`: of the tensor's layer or operation, for the message.
    """
    shape = tuple(tensor.shape)
    if None in shape:
        raise InputError(
            f"{name}: its cost cannot be counted, because a shape is only known at run time; build shapes "
            f"from `inputs.shape` where they are fixed. Received: {shape}"
        )
    return shape


def paper_flops(layer: keras.layers.Layer, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> int:
    """Count the operations of one call as the paper's tables do, for the layer's direct parameters only.

    A module counts once for each parameter tensor. A kernel of k values counts k at every position of the output, that
    of a convolution with a bias one more per output value; scale and offset of a norm count twice the input each. All
    other layers (embeddings, activations, pooling, attention products) count nothing.

    Args:
        layer: Keras layer; parameters named `...kernel` and `...bias` belong together, norms have `gamma`, `beta`.
        inputs, outputs: Shapes of one call.
    """
    parameters = {variable.name: tuple(variable.shape) for variable in direct_weights(layer)}
    # A recurrent layer that returns its last state only has taken a step at every position of its input.
    positions, total = math.prod((inputs if hasattr(layer, "return_sequences") else outputs)[:-1]), 0
    for name, kernel in parameters.items():
        if name.endswith("kernel"):
            bias = parameters.get(name.removesuffix("kernel") + "bias")
            # Rank 4 is a convolution: the paper's counter adds its bias, but not that of a dense layer.
            added = math.prod(bias) if bias and len(kernel) == 4 else 0
            total += (1 if bias is None else 2) * (math.prod(kernel) + added) * positions
    norms = sum(name in ("gamma", "beta") for name in parameters)
    return total + norms * 2 * math.prod(inputs)


def direct_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the weights of a layer without those of its sublayers; frozen ones too."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def multiply_adds(operation: tf.Operation) -> int:
    """Count the multiply-adds of a TensorFlow operation: a convolution, a product, or a loop of them; 0 for others."""
    if operation.type in LOOPS:
        return _loop(operation)
    if operation.type not in PRODUCTS or len(operation.inputs) != 2:
        return 0
    first, second = (known_shape(value, operation.name) for value in operation.inputs)
    if operation.type == "Einsum":
        return _einsum(operation.get_attr("equation").decode(), (first, second))
    outputs = math.prod(known_shape(operation.outputs[0], operation.name))
    if operation.type == "Conv2D":
        return outputs * math.prod(second[:3])
    if operation.type == "DepthwiseConv2dNative":
        return outputs * math.prod(second[:2])
    is_transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return outputs * first[-2 if is_transposed else -1]


def _loop(operation):
    """Count all iterations of a loop; 0 if their number is unknown."""
    iterations = tf.get_static_value(operation.inputs[1])
    if iterations is None or iterations < 0:
        return 0
    body = operation.graph._get_function(operation.get_attr("body").name).graph
    return int(iterations) * sum(map(multiply_adds, body.get_operations()))


def _einsum(equation, shapes):
    """Return the product of the sizes of all indices."""
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        term = term.replace("...", _DIGITS[len(_DIGITS) - hidden :])
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values())


def unit_costs(layers: Iterable[ForwardCost], units: dict[str, str]) -> tuple[ForwardCost, ...]:
    """Add up the costs of layers by unit.

    Args:
        layers: The result of `counting.forward`.
        units: `{name of a layer: name of its unit}`, such as `recipe.model.units`.

    Returns:
        One cost for each unit with layers, in the order of `units`.
    """
    by_name = {layer.name: layer for layer in layers}
    by_unit: dict[str, list[ForwardCost]] = {}
    for name, unit in units.items():
        if name in by_name:
            by_unit.setdefault(unit, []).append(by_name[name])
    return tuple(total(costs, unit) for unit, costs in by_unit.items())


def unit_shares(
    recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int
) -> dict[str, float]:
    """Return each unit's share of the full model's cost, in the measure of the budgets; empty without budgets.

    Args:
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
    """
    levels = recipe.levels
    if not levels.budgets:
        return {}
    width = levels.widths[levels.global_level]
    amounts = unit_amounts(recipe, shape, example, classes, width)
    full = amounts if width == 1 else unit_amounts(recipe, shape, example, classes)
    return {unit: amount / sum(full.values()) for unit, amount in amounts.items()}


def unit_amounts(
    recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int, width: float = 1.0
) -> dict[str, float]:
    """Return the cost of each unit of the model without exits, in the measure of the budgets.

    Budgets are shares of the sum at width 1. Arguments: see `unit_shares`.
    """
    is_map = recipe.targets == "label_map"
    model = build_model(recipe.model, shape, width, classes=classes, dtype=recipe.float_type, label_map=is_map)
    costs = unit_costs(forward(model, example), recipe.model.units)
    return {cost.name: cost.by(recipe.levels.measure) for cost in costs}
