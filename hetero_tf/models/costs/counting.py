"""Counts the operations of one call of a Keras model, from a trace of it, without knowledge of its layers."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.variables import all_layers, is_seed, layer_signature

PRODUCTS = ("Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2", "Einsum")
# Their first two inputs are the iteration counter and the maximum number of iterations.
LOOPS = ("While", "StatelessWhile")
# Names of the axes of `...` in an einsum; equations use letters only.
_DIGITS = "0123456789"


@dataclass(frozen=True)
class LayerFootprint:
    """Memory of a top-level layer of a model during a prediction for one example.

    Attributes:
        layer: Its name.
        weights: Number of all values of its weights, frozen ones too.
        passed: The most input and output values of one call of it, or of a sublayer.
    """

    layer: str
    weights: int
    passed: int


@dataclass(frozen=True)
class Forward:
    """One forward pass of one example.

    Attributes:
        paper_flops: In the convention of the HeteroFL paper, see `paper_flops`.
        multiply_adds: Of the products that actually run, see `multiply_adds`.
        products: Number of these products: convolutions and matrix products.
        activations: Output values of the innermost layers, most of the memory of backpropagation.
        footprints: `LayerFootprint` of each top-level layer, in the order in which they return.
    """

    paper_flops: int
    multiply_adds: int
    products: int
    activations: int
    footprints: tuple[LayerFootprint, ...]


@dataclass(frozen=True)
class Call:
    """One call of a layer.

    Attributes:
        layer: The layer.
        inputs: Its first argument, a tensor or a structure of tensors.
        outputs: Its result, likewise.
    """

    layer: keras.layers.Layer
    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class OuterCall:
    """The call of a top-level layer of a model.

    Attributes:
        layer: The layer.
        calls: Of this layer and of its sublayers, in the order in which they return; its own call is the last.
        products: Multiply-adds of each convolution and matrix product in it.
    """

    layer: keras.layers.Layer
    calls: tuple[Call, ...]
    products: tuple[int, ...]


def trace(model: keras.Model, example: tuple[int, ...]) -> list[OuterCall]:
    """Trace one call of a model and return the calls of its layers, in the order in which they return.

    Equal layers with equal input shapes are called once. Operations inside a `tf.function` of a layer, or in a loop of
    an unknown number of iterations, are not counted.

    Args:
        model: A model; while it is traced, its layers record their calls.
        example: Shape of one input, without None.

    Raises:
        InputError: A product has a shape that is only known at run time.
    """
    calls, outer_calls, outputs_by_signature = [], [], {}
    directly_in_model = {id(layer) for layer in model.layers}

    def recording(layer, call):
        def record(*args, **kwargs):
            outputs = call(*args, **kwargs)
            calls.append(Call(layer, args[0] if args else None, outputs))
            return outputs

        def record_outer(*args, **kwargs):
            signature = layer_signature(layer), str(tf.nest.map_structure(_spec, (args, kwargs)))
            if signature not in outputs_by_signature:
                graph = tf.compat.v1.get_default_graph()
                before = len(graph.get_operations())
                outputs = record(*args, **kwargs)
                counts = map(multiply_adds, graph.get_operations()[before:])
                outputs_by_signature[signature] = outputs, OuterCall(layer, tuple(calls), tuple(filter(None, counts)))
                calls.clear()
            outputs, first_call = outputs_by_signature[signature]
            outer_calls.append(dataclasses.replace(first_call, layer=layer))
            return outputs

        return record_outer if id(layer) in directly_in_model else record

    layers = list(all_layers(model))
    instance_calls = {id(layer): layer.__dict__["call"] for layer in layers if "call" in layer.__dict__}
    for layer in layers:
        layer.call = recording(layer, layer.call)
    spec = tf.TensorSpec((1, *example), model.inputs[0].dtype)
    try:
        tf.function(lambda inputs: model(inputs, training=False), autograph=False).get_concrete_function(spec)
    finally:
        for layer in layers:
            del layer.call
            if id(layer) in instance_calls:
                layer.call = instance_calls[id(layer)]
    return outer_calls


def _spec(argument):
    return (argument.shape, argument.dtype) if isinstance(argument, tf.Tensor) else argument


def forward(model: keras.Model, example: tuple[int, ...]) -> Forward:
    """Count one forward pass of one example; see `trace` for the arguments.

    Raises:
        InputError: A layer has a shape that is only known at run time.
    """
    outer_calls = trace(model, example)
    products = [count for outer in outer_calls for count in outer.products]
    shapes = [_shapes(call) for outer in outer_calls for call in outer.calls if _maps_tensor(call)]
    return Forward(
        paper_flops=sum(paper_flops(*of_call) for of_call in shapes),
        multiply_adds=sum(products),
        products=len(products),
        activations=sum(math.prod(outputs) for layer, _, outputs in shapes if not _has_layers(layer)),
        footprints=tuple(map(_footprint, outer_calls)),
    )


def _footprint(outer):
    weights = sum(math.prod(variable.shape) for variable in outer.layer.weights if not is_seed(variable))
    return LayerFootprint(outer.layer.name, weights, max(map(_passed, outer.calls)))


def _passed(call):
    tensors = [*tf.nest.flatten(call.inputs), *tf.nest.flatten(call.outputs)]
    return sum(math.prod(known_shape(value, call.layer.name)) for value in tensors if isinstance(value, tf.Tensor))


def _maps_tensor(call):
    """Return whether a call maps one tensor to one tensor."""
    return isinstance(call.inputs, tf.Tensor) and isinstance(call.outputs, tf.Tensor)


def _shapes(call):
    name = call.layer.name
    return call.layer, known_shape(call.inputs, name), known_shape(call.outputs, name)


def _has_layers(layer):
    return any(layer._flatten_layers(include_self=False))


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
    sizes = {}
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        term = term.replace("...", _DIGITS[len(_DIGITS) - hidden :])
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values())
