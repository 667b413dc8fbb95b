"""Counts the operations of one call of a Keras model, from a trace of it; no layer or model is known by name."""

import math
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.base.errors import BadInput
from hetero_tf.models.variables import all_layers

PRODUCTS = ("Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2", "Einsum")
# Names for the axes behind `...` in an einsum; equations use letters only.
_DIGITS = "0123456789"


@dataclass(frozen=True)
class Forward:
    """One forward pass of one example.

    Attributes:
        paper_flops: In the convention of the HeteroFL paper, see `paper_flops`.
        multiply_adds: The products that really run, see `multiply_adds`.
        products: Operations that do them: convolutions and matrix products.
        activations: Values that the innermost layers hand on, most of what backpropagation keeps.
    """

    paper_flops: int
    multiply_adds: int
    products: int
    activations: int


def forward(model, example):
    """Traces one call and counts; what a layer hides in a loop or a tf.function of its own is not seen.

    Args:
        model: Built Keras model. Its layers are changed, so give one that is not used elsewhere.
        example: Shape of one input, without None.

    Returns:
        `Forward`.

    Raises:
        BadInput: A layer gives a shape that is known only when it runs.
    """
    calls = []
    for layer in all_layers(model):
        layer.call = _recorded(layer, layer.call, calls)
    spec = tf.TensorSpec((1, *example), model.inputs[0].dtype)
    graph = tf.function(lambda inputs: model(inputs, training=False)).get_concrete_function(spec).graph
    counts = [multiply_adds(operation) for operation in graph.get_operations()]
    innermost = [outputs for layer, _, outputs in calls if not any(layer._flatten_layers(include_self=False))]
    return Forward(
        paper_flops=sum(paper_flops(*call) for call in calls),
        multiply_adds=sum(counts),
        products=sum(count > 0 for count in counts),
        activations=sum(math.prod(shape) for shape in innermost),
    )


def _recorded(layer, call, calls):
    """`call` that leaves (layer, input shape, output shape) in `calls`."""

    def recorded(*args, **kwargs):
        outputs = call(*args, **kwargs)
        if args and all(isinstance(value, tf.Tensor) for value in (args[0], outputs)):
            calls.append((layer, known_shape(args[0], layer.name), known_shape(outputs, layer.name)))
        return outputs

    return recorded


def known_shape(tensor, where):
    """The shape of a tensor; refuses one with a size that only a run tells. `where` names its layer or operation."""
    shape = tuple(tensor.shape)
    if None in shape:
        raise BadInput(
            f"{where}: its cost cannot be counted, because a shape is known only when it runs; build shapes "
            f"from `inputs.shape` where they are fixed. Received: {shape}"
        )
    return shape


def paper_flops(layer, inputs, outputs):
    """Operations of one call by the convention of the paper's tables, of the layer's own parameters only.

    A module counts as often as it has parameter tensors. A kernel of k values counts k at every place of the
    output, that of a convolution with a bias one more per output value; scale and offset of a norm count twice
    the input each. Everything else (embeddings, activations, pooling, attention products) counts nothing.

    Args:
        layer: Keras layer; parameters named `...kernel` and `...bias` belong together, norms have `gamma`, `beta`.
        inputs, outputs: Shapes of one call.
    """
    own = {variable.name: tuple(variable.shape) for variable in layer._trainable_variables}
    places, total = math.prod(outputs[:-1]), 0
    for name, kernel in own.items():
        if name.endswith("kernel"):
            bias = own.get(name.removesuffix("kernel") + "bias")
            # Rank 4 is a convolution: the paper's counter adds its bias, that of a dense layer not.
            added = math.prod(bias) if bias and len(kernel) == 4 else 0
            total += (1 if bias is None else 2) * (math.prod(kernel) + added) * places
    norms = sum(name in ("gamma", "beta") for name in own)
    return total + norms * 2 * math.prod(inputs)


def multiply_adds(operation):
    """Multiply-adds of one TensorFlow operation; 0 unless it is a convolution or a product of tensors."""
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


def _einsum(equation, shapes):
    """The product of the sizes of all indices."""
    sizes = {}
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        hidden = len(shape) - len(term.replace("...", ""))
        term = term.replace("...", _DIGITS[len(_DIGITS) - hidden :])
        for index, size in zip(term, shape, strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values())
