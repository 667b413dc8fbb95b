"""Counts the operations of one call of a Keras model, from a trace of it; no layer or model is known by name."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from hetero_tf.base.errors import InputError
from hetero_tf.models.variables import all_layers, is_seed, kind_of

PRODUCTS = ("Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2", "Einsum")
# Their first two inputs count the turns, and say how many there are at most.
LOOPS = ("While", "StatelessWhile")
# Names for the axes behind `...` in an einsum; equations use letters only.
_DIGITS = "0123456789"


@dataclass(frozen=True)
class Held:
    """What a layer that stands directly in a model needs while it predicts for one example.

    Attributes:
        layer: Its name.
        weights: All values of its weights, also those that nobody trains.
        passed: The most values that it, or a layer inside it, takes and hands on in one call.
    """

    layer: str
    weights: int
    passed: int


@dataclass(frozen=True)
class Forward:
    """One forward pass of one example.

    Attributes:
        paper_flops: In the convention of the HeteroFL paper, see `paper_flops`.
        multiply_adds: The products that really run, see `multiply_adds`.
        products: Operations that do them: convolutions and matrix products.
        activations: Values that the innermost layers hand on, most of what backpropagation keeps.
        held: `Held` of each layer that stands directly in the model, in the order in which they return.
    """

    paper_flops: int
    multiply_adds: int
    products: int
    activations: int
    held: tuple[Held, ...]


@dataclass(frozen=True)
class Call:
    """One call of a layer.

    Attributes:
        layer: The layer.
        inputs: Its first argument, a tensor or a structure of tensors.
        outputs: What it returned, likewise.
    """

    layer: keras.layers.Layer
    inputs: Any
    outputs: Any


@dataclass(frozen=True)
class OuterCall:
    """The call of a layer that stands directly in a model.

    Attributes:
        layer: The layer.
        calls: Of this layer and of those inside it, in the order in which they return; its own is the last.
        products: Multiply-adds of each convolution and matrix product in it.
    """

    layer: keras.layers.Layer
    calls: tuple[Call, ...]
    products: tuple[int, ...]


def trace(model: keras.Model, example: tuple[int, ...]) -> list[OuterCall]:
    """Traces one call of a model and returns what its layers did, in the order in which they return.

    Layers of one kind that take the same shapes are called once. What a layer hides in a `tf.function` of its own, or
    in a loop of an unknown number of turns, is not seen.

    Args:
        model: A model; while it is traced, its layers record their calls.
        example: Shape of one input, without None.

    Raises:
        InputError: A product has a shape that is known only when it runs.
    """
    calls, outer_calls, known = [], [], {}
    directly_in_model = {id(layer) for layer in model.layers}

    def recording(layer, call):
        def record(*args, **kwargs):
            outputs = call(*args, **kwargs)
            calls.append(Call(layer, args[0] if args else None, outputs))
            return outputs

        def record_outer(*args, **kwargs):
            kind = kind_of(layer), str(tf.nest.map_structure(_spec, (args, kwargs)))
            if kind not in known:
                graph = tf.compat.v1.get_default_graph()
                before = len(graph.get_operations())
                outputs = record(*args, **kwargs)
                counts = map(multiply_adds, graph.get_operations()[before:])
                known[kind] = outputs, OuterCall(layer, tuple(calls), tuple(filter(None, counts)))
                calls.clear()
            outputs, like = known[kind]
            outer_calls.append(dataclasses.replace(like, layer=layer))
            return outputs

        return record_outer if id(layer) in directly_in_model else record

    layers = list(all_layers(model))
    own = {id(layer): layer.__dict__["call"] for layer in layers if "call" in layer.__dict__}
    for layer in layers:
        layer.call = recording(layer, layer.call)
    spec = tf.TensorSpec((1, *example), model.inputs[0].dtype)
    try:
        tf.function(lambda inputs: model(inputs, training=False), autograph=False).get_concrete_function(spec)
    finally:
        for layer in layers:
            del layer.call
            if id(layer) in own:
                layer.call = own[id(layer)]
    return outer_calls


def _spec(argument):
    return (argument.shape, argument.dtype) if isinstance(argument, tf.Tensor) else argument


def forward(model: keras.Model, example: tuple[int, ...]) -> Forward:
    """Counts one forward pass of one example; see `trace` for the arguments.

    Raises:
        InputError: A layer gives a shape that is known only when it runs.
    """
    outer_calls = trace(model, example)
    products = [count for outer in outer_calls for count in outer.products]
    shapes = [_shapes(call) for outer in outer_calls for call in outer.calls if _maps_tensor(call)]
    return Forward(
        paper_flops=sum(paper_flops(*of_call) for of_call in shapes),
        multiply_adds=sum(products),
        products=len(products),
        activations=sum(math.prod(outputs) for layer, _, outputs in shapes if not _has_layers(layer)),
        held=tuple(map(_held, outer_calls)),
    )


def _held(outer):
    weights = sum(math.prod(variable.shape) for variable in outer.layer.weights if not is_seed(variable))
    return Held(outer.layer.name, weights, max(map(_passed, outer.calls)))


def _passed(call):
    tensors = [*tf.nest.flatten(call.inputs), *tf.nest.flatten(call.outputs)]
    return sum(math.prod(known_shape(value, call.layer.name)) for value in tensors if isinstance(value, tf.Tensor))


def _maps_tensor(call):
    """Whether a call takes one tensor to one tensor."""
    return isinstance(call.inputs, tf.Tensor) and isinstance(call.outputs, tf.Tensor)


def _shapes(call):
    name = call.layer.name
    return call.layer, known_shape(call.inputs, name), known_shape(call.outputs, name)


def _has_layers(layer):
    return any(layer._flatten_layers(include_self=False))


def known_shape(tensor: tf.Tensor, where: str) -> tuple[int, ...]:
    """Returns the shape of a tensor and refuses one with a size that is known only at run time.

    `where` names the tensor's layer or operation in the message.
    """
    shape = tuple(tensor.shape)
    if None in shape:
        raise InputError(
            f"{where}: its cost cannot be counted, because a shape is known only when it runs; build shapes "
            f"from `inputs.shape` where they are fixed. Received: {shape}"
        )
    return shape


def paper_flops(layer: keras.layers.Layer, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> int:
    """Counts the operations of one call as the paper's tables do, for the layer's own parameters only.

    A module counts as often as it has parameter tensors. A kernel of k values counts k at every position of the
    output, that of a convolution with a bias one more per output value; scale and offset of a norm count twice
    the input each. Everything else (embeddings, activations, pooling, attention products) counts nothing.

    Args:
        layer: Keras layer; parameters named `...kernel` and `...bias` belong together, norms have `gamma`, `beta`.
        inputs, outputs: Shapes of one call.
    """
    parameters = {variable.name: tuple(variable.shape) for variable in own_weights(layer)}
    # A layer that hands on its last state only has taken a step at every position of its input.
    positions, total = math.prod((inputs if hasattr(layer, "return_sequences") else outputs)[:-1]), 0
    for name, kernel in parameters.items():
        if name.endswith("kernel"):
            bias = parameters.get(name.removesuffix("kernel") + "bias")
            # Rank 4 is a convolution: the paper's counter adds its bias, that of a dense layer not.
            added = math.prod(bias) if bias and len(kernel) == 4 else 0
            total += (1 if bias is None else 2) * (math.prod(kernel) + added) * positions
    norms = sum(name in ("gamma", "beta") for name in parameters)
    return total + norms * 2 * math.prod(inputs)


def own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Returns the weights of a layer without those of the layers inside it; frozen ones too."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def multiply_adds(operation: tf.Operation) -> int:
    """Counts the multiply-adds of a TensorFlow operation: a convolution, a product, or a loop of them; 0 for others."""
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
    turned = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return outputs * first[-2 if turned else -1]


def _loop(operation):
    """What all turns of a loop do; 0 where nothing says how many they are."""
    turns = tf.get_static_value(operation.inputs[1])
    if turns is None or turns < 0:
        return 0
    body = operation.graph._get_function(operation.get_attr("body").name).graph
    return int(turns) * sum(map(multiply_adds, body.get_operations()))


def _einsum(equation, shapes):
    """The product of the sizes of all indices."""
    sizes = {}
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        term = term.replace("...", _DIGITS[len(_DIGITS) - hidden :])
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values())
