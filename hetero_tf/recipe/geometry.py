"""Shapes and sizes that every layer of the table gives, from its arguments alone: without Keras, and for no memory.

A shape has no batch axis: (rows, columns, channels) of a map, (positions, channels) of a row of tokens, (channels,) of
a vector, (positions,) of words.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hetero_tf.base import registry
from hetero_tf.recipe.model import Classes, LayerSpec, Width
from hetero_tf.recipe.nodes import InvalidValue, show

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """What the sizes in a recipe stand for.

    Attributes:
        width: Of the model, in (0, 1].
        classes: Length of the label axis.
    """

    width: float
    classes: int

    def of(self, value: Any) -> Any:
        """Returns a value of the recipe with `!w` and `!classes` as numbers."""
        return value.at(self.width) if isinstance(value, Width) else self.classes if value == Classes() else value


@dataclass(frozen=True)
class Step:
    """What one layer does with one example.

    Attributes:
        spec: The layer.
        before, after: Shapes of its input and its output.
        weights: Entries of its kernels and tables; vectors such as biases and norms are left out.
        hidden: Values that it keeps between its input and its output.
    """

    spec: LayerSpec
    before: Shape
    after: Shape
    weights: int
    hidden: int


def step(spec: LayerSpec, before: Shape, sizes: Sizes) -> Step | None:
    """Returns what a layer does with an input of a shape, or None where only the layer itself knows that.

    Raises:
        InvalidValue: The layer leaves nothing of such an input, or cannot divide it.
    """
    if spec.kind not in _LAYERS:
        return None
    plugin = registry.options("layers", spec.kind) if spec.kind in registry.names("layers") else {}
    defaults = {name: option.default for name, option in plugin.items() if not option.required}
    args = {name: sizes.of(value) for name, value in {**defaults, **spec.args}.items()}
    after, weights, hidden = _LAYERS[spec.kind](spec, before, args)
    return Step(spec, before, after, weights, hidden)


def _same(spec, before, args):
    return before, 0, 0


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def _window(spec, before, size, strides, padding, dilation=1):
    """Rows and columns behind a window that slides over a map."""
    size, strides, dilation = _pair(size), _pair(strides), _pair(dilation)
    spans = [(one - 1) * apart + 1 for one, apart in zip(size, dilation)]
    if padding == "same":
        return tuple(-(-length // stride) for length, stride in zip(before, strides))
    if any(span > length for span, length in zip(spans, before)):
        raise InvalidValue(
            spec.path,
            f"{spec.kind} looks at {_times(spans)} pixels at once, but {_times(before[:2])} are left here; "
            f"give it a smaller window or `padding: same`, or pool less before it. Received: {show(spec.args)}",
        )
    return tuple((length - span) // stride + 1 for length, span, stride in zip(before, spans, strides))


def _times(sizes):
    return " x ".join(map(str, sizes))


def _pooling(spec, before, args):
    size = args.get("pool_size", 2)
    strides = args.get("strides") or size
    return (*_window(spec, before, size, strides, args.get("padding", "valid")), before[2]), 0, 0


def _convolution(spec, before, args):
    dilation, size = args.get("dilation_rate", 1), _pair(args["kernel_size"])
    places = _window(spec, before, size, args.get("strides", 1), args.get("padding", "valid"), dilation)
    depthwise = "filters" not in args
    filters = before[2] if depthwise else args["filters"]
    return (*places, filters), math.prod(size) * filters * (1 if depthwise else before[2]), 0


def _padded(before, stride, filters):
    return (*(-(-length // stride) for length in before[:2]), filters)


def _padded_convolution(spec, before, args):
    depthwise = "filters" not in args
    filters = before[2] if depthwise else args["filters"]
    weights = args["kernel_size"] ** 2 * filters * (1 if depthwise else before[2])
    return _padded(before, args["stride"], filters), weights, 0


def _residual(spec, before, args):
    filters = args["filters"]
    after, changed = _padded(before, args["stride"], filters), args["stride"] != 1 or before[2] != filters
    weights = (9 + changed) * before[2] * filters + 9 * filters**2
    # Each of two convolutions is normalised and activated, and the sum is a value of its own.
    return after, weights, 4 * math.prod(after)


def _separable(spec, before, args):
    after, channels = _padded(before, args["stride"], args["filters"]), before[2]
    weights = channels * (channels + args["filters"]) + 18 * channels
    return after, weights, 4 * math.prod(after[:2]) * channels


def _gate(spec, before, args):
    return before, 2 * before[2] ** 2 + 18 * before[2], 0


def _cropping(spec, before, args):
    cut = _pair(args.get("cropping", 0))
    if any(2 * edge >= length for edge, length in zip(cut, before)):
        raise InvalidValue(
            spec.path,
            f"{spec.kind} cuts {_times(2 * edge for edge in cut)} pixels away, but {_times(before[:2])} are left here; "
            f"crop less. Received: {show(spec.args)}",
        )
    return (*(length - 2 * edge for edge, length in zip(cut, before)), before[2]), 0, 0


def _zeros(spec, before, args):
    edges = _pair(args.get("padding", 1))
    return (*(length + 2 * edge for edge, length in zip(edges, before)), before[2]), 0, 0


def _upsampling(spec, before, args):
    return (*(length * times for length, times in zip(before, _pair(args.get("size", 2)))), before[2]), 0, 0


def _patches(spec, before, args):
    patch, width = args["patch"], args["width"]
    if before[0] % patch or before[1] % patch:
        raise InvalidValue(
            (*spec.path, "patch"), f"must divide the {_times(before[:2])} pixels that are left here. Received: {patch}"
        )
    positions = (before[0] // patch) * (before[1] // patch) + 1
    return (positions, width), patch**2 * before[2] * width + positions * width, 0


def _embedding(spec, before, args):
    return (*before, args["width"]), (args["classes"] + 1 + args["positions"]) * args["width"], 0


def _words(spec, before, args):
    return (*before, args["width"]), args["words"] * args["width"], 0


def _recurrent(gates):
    def step(spec, before, args):
        units = args["units"]
        after = (*before[:-1], units) if args["return_sequences"] else (units,)
        # What goes into the gates, and what comes out of them, at every position.
        return after, gates * units * (before[-1] + units), 2 * gates * units * before[0]

    return step


def _attention(spec, before, args):
    inner = args["heads"] * args["head_width"]
    # Queries, keys and values, and a score for each pair of positions.
    weights = 4 * (before[-1] * inner + _adapter(args, before[-1] + inner))
    return before, weights, before[0] * (3 * inner + args["heads"] * before[0])


def _transformer(spec, before, args):
    _, weights, hidden = _attention(spec, before, args)
    weights += 2 * (before[-1] * args["hidden"] + _adapter(args, before[-1] + args["hidden"]))
    return before, weights, hidden + before[0] * (2 * args["hidden"] + before[-1])


def _dense(spec, before, args):
    units = args["units"]
    return (*before[:-1], units), before[-1] * units + _adapter(args, before[-1] + units), 0


def _adapter(args, sides):
    """Weights of an adapter of low rank, for the inputs and outputs of its product together; 0 where there is none."""
    return (args.get("lora_rank") or 0) * sides


def _last(spec, before, args):
    return before[-1:], 0, 0


def _flat(spec, before, args):
    return (math.prod(before),), 0, 0


_ALIKE = (
    *("Activation", "Dropout", "ELU", "GELU", "GroupNormalization", "Identity", "LayerNormalization", "LeakyReLU"),
    *("Norm", "ReLU", "Scaler", "SpatialDropout2D", "StaticBatchNormalization", "TrackedBatchNormalization"),
)
# The layers that are not here are those of plug-ins, and Link, which the blockwise stages place.
_LAYERS: dict[str, Callable[[LayerSpec, Shape, dict], tuple[Shape, int, int]]] = {
    **dict.fromkeys(_ALIKE, _same),
    **dict.fromkeys(("AveragePooling2D", "MaxPooling2D"), _pooling),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2D"), _convolution),
    **dict.fromkeys(("PaddedConv2D", "PaddedDepthwiseConv2D"), _padded_convolution),
    **dict.fromkeys(("PreActivationBlock", "PostActivationBlock"), _residual),
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalMaxPooling2D", "ClassTokenReadout"), _last),
    "AttentionGate": _gate,
    "Cropping2D": _cropping,
    "Dense": _dense,
    "Embedding": _words,
    "Flatten": _flat,
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "LoraDense": _dense,
    "MaskedTokenEmbedding": _embedding,
    "PatchEmbedding": _patches,
    "SelfAttention": _attention,
    "SeparableBlock": _separable,
    "TransformerBlock": _transformer,
    "UpSampling2D": _upsampling,
    "ZeroPadding2D": _zeros,
}
