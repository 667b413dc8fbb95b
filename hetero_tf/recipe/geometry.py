"""Output shapes and weight counts of the layer table, computed from the arguments without Keras.

Shapes have no batch axis: (rows, columns, channels) of a feature map, (positions, channels) of a token sequence,
(channels,) of a vector, (positions,) of token ids.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hetero_tf.base import registry
from hetero_tf.recipe.model import Classes, LayerSpec, Width
from hetero_tf.recipe.nodes import InvalidValue, format_value

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """Values of `!w` and `!classes` for one model.

    Attributes:
        width: Width of the model, in (0, 1].
        classes: Length of the label axis.
    """

    width: float
    classes: int

    def of(self, value: Any) -> Any:
        """Return a recipe value with `!w` and `!classes` as numbers."""
        return value.at(self.width) if isinstance(value, Width) else self.classes if value == Classes() else value


@dataclass(frozen=True)
class Step:
    """Shapes and sizes of one layer for one example.

    Attributes:
        spec: The layer.
        before, after: Shapes of its input and its output.
        weights: Entries of its kernels and tables, without vectors such as biases and norms.
        hidden: Intermediate values between its input and its output.
    """

    spec: LayerSpec
    before: Shape
    after: Shape
    weights: int
    hidden: int


def step(spec: LayerSpec, before: Shape, sizes: Sizes) -> Step | None:
    """Return the step of a layer for an input shape; None if the shape is known only to the layer (a plug-in).

    Raises:
        InvalidValue: The layer has an empty output for this input, or cannot divide it.
    """
    if spec.kind not in _LAYERS:
        return None
    plugin = registry.options("layers", spec.kind) if spec.kind in registry.names("layers") else {}
    defaults = {name: option.default for name, option in plugin.items() if not option.required}
    args = {name: sizes.of(value) for name, value in {**defaults, **spec.args}.items()}
    after, weights, hidden = _LAYERS[spec.kind](spec, before, args)
    return Step(spec, before, after, weights, hidden)


def _unchanged(spec, before, args):
    return before, 0, 0


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def _window(spec, before, size, strides, padding, dilation=1):
    """Return rows and columns of the output of a sliding window."""
    size, strides, dilation = _pair(size), _pair(strides), _pair(dilation)
    spans = [(window - 1) * spacing + 1 for window, spacing in zip(size, dilation)]
    if padding == "same":
        return tuple(-(-length // stride) for length, stride in zip(before, strides))
    if any(span > length for span, length in zip(spans, before)):
        raise InvalidValue(
            spec.path,
            f"the window of {spec.kind} has {_format_sizes(spans)} pixels, but its input has "
            f"{_format_sizes(before[:2])}; use a smaller window or `padding: same`, or less pooling before it. "
            f"Received: {format_value(spec.args)}",
        )
    return tuple((length - span) // stride + 1 for length, span, stride in zip(before, spans, strides))


def _format_sizes(sizes):
    return " x ".join(map(str, sizes))


def _pooling(spec, before, args):
    size = args.get("pool_size", 2)
    strides = args.get("strides") or size
    return (*_window(spec, before, size, strides, args.get("padding", "valid")), before[2]), 0, 0


def _convolution(spec, before, args):
    dilation, size = args.get("dilation_rate", 1), _pair(args["kernel_size"])
    positions = _window(spec, before, size, args.get("strides", 1), args.get("padding", "valid"), dilation)
    depthwise = "filters" not in args
    filters = before[2] if depthwise else args["filters"]
    return (*positions, filters), math.prod(size) * filters * (1 if depthwise else before[2]), 0


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
    # Two convolutions, each with normalisation and activation, and the sum.
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
            f"{spec.kind} removes {_format_sizes(2 * edge for edge in cut)} pixels, but its input has "
            f"{_format_sizes(before[:2])}; crop less. Received: {format_value(spec.args)}",
        )
    return (*(length - 2 * edge for edge, length in zip(cut, before)), before[2]), 0, 0


def _zero_padding(spec, before, args):
    edges = _pair(args.get("padding", 1))
    return (*(length + 2 * edge for edge, length in zip(edges, before)), before[2]), 0, 0


def _upsampling(spec, before, args):
    return (*(length * times for length, times in zip(before, _pair(args.get("size", 2)))), before[2]), 0, 0


def _patches(spec, before, args):
    patch, width = args["patch"], args["width"]
    if before[0] % patch or before[1] % patch:
        raise InvalidValue(
            (*spec.path, "patch"), f"must divide the {_format_sizes(before[:2])} pixels of the input. Received: {patch}"
        )
    positions = (before[0] // patch) * (before[1] // patch) + 1
    return (positions, width), patch**2 * before[2] * width + positions * width, 0


def _embedding(spec, before, args):
    return (*before, args["width"]), (args["classes"] + 1 + args["positions"]) * args["width"], 0


def _token_embedding(spec, before, args):
    return (*before, args["width"]), args["words"] * args["width"], 0


def _recurrent(gates):
    def step(spec, before, args):
        units = args["units"]
        after = (*before[:-1], units) if args["return_sequences"] else (units,)
        # Inputs and outputs of the gates, at every position.
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
    """Return the weights of a low-rank adapter; sides: inputs plus outputs of its kernel. 0 without an adapter."""
    return (args.get("lora_rank") or 0) * sides


def _channels_only(spec, before, args):
    return before[-1:], 0, 0


def _flatten(spec, before, args):
    return (math.prod(before),), 0, 0


_SHAPE_PRESERVING = (
    *("Activation", "Dropout", "ELU", "GELU", "GroupNormalization", "Identity", "LayerNormalization", "LeakyReLU"),
    *("Norm", "ReLU", "Scaler", "SpatialDropout2D", "StaticBatchNormalization", "TrackedBatchNormalization"),
)
# Missing are layers of plug-ins, and Link, which the blockwise stages insert.
_LAYERS: dict[str, Callable[[LayerSpec, Shape, dict], tuple[Shape, int, int]]] = {
    **dict.fromkeys(_SHAPE_PRESERVING, _unchanged),
    **dict.fromkeys(("AveragePooling2D", "MaxPooling2D"), _pooling),
    **dict.fromkeys(("Conv2D", "DepthwiseConv2D"), _convolution),
    **dict.fromkeys(("PaddedConv2D", "PaddedDepthwiseConv2D"), _padded_convolution),
    **dict.fromkeys(("PreActivationBlock", "PostActivationBlock"), _residual),
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalMaxPooling2D", "ClassTokenReadout"), _channels_only),
    "AttentionGate": _gate,
    "Cropping2D": _cropping,
    "Dense": _dense,
    "Embedding": _token_embedding,
    "Flatten": _flatten,
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "LoraDense": _dense,
    "MaskedTokenEmbedding": _embedding,
    "PatchEmbedding": _patches,
    "SelfAttention": _attention,
    "SeparableBlock": _separable,
    "TransformerBlock": _transformer,
    "UpSampling2D": _upsampling,
    "ZeroPadding2D": _zero_padding,
}
