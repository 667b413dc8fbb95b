"""Layers that a recipe may use, with annotation and default of every argument; all others are rejected.

Keras layers are listed here. `registry` reads the layers of this package and of plug-ins from their source.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from hetero_tf.base import registry
from hetero_tf.base.constraints import (
    LARGEST_SIZE,
    REQUIRED,
    Epsilon,
    FixedSize,
    NotNegative,
    Option,
    Range,
    Size,
    Text,
    read_annotation,
)
from hetero_tf.base.errors import did_you_mean, find_nearest
from hetero_tf.base.files import read_rows
from hetero_tf.recipe.nodes import format_value

ACTIVATIONS = (
    *("elu", "gelu", "hard_silu", "leaky_relu", "linear", "mish", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("softplus", "tanh"),
)
INITIALIZERS = (
    *("fan_in_uniform", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal"),
    *("lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform", "truncated_normal", "zeros"),
)
Window = Annotated[int | tuple[int, int], Range(low=1, high=1000)]
# See `constraints.OddSize`.
KernelSize = Annotated[int | tuple[int, int], Range(low=1, high=127)]
Edge = Annotated[int | tuple[int, int], Range(low=0, high=1000)]
Padding = Literal["valid", "same"]
Activation = Annotated[str, Text(choices=ACTIVATIONS)]
Initializer = Annotated[str, Text(choices=INITIALIZERS)]
# A bias has no fan-in, so only constant initializers apply.
ConstantInitializer = Literal["zeros", "ones"]
Slope = Annotated[float, Range(low=0.0, high=1000.0)]

_COMMON = {
    "use_bias": (bool, True),
    "activation": (Activation | None, None),
    "bias_initializer": (ConstantInitializer, "zeros"),
}
_POOL_1D = {"strides": (FixedSize | None, None), "padding": (Padding, "valid")}
_POOL = {"strides": (Window | None, None), "padding": (Padding, "valid")}
_SCALED = {"epsilon": (Epsilon, 1e-3), "center": (bool, True), "scale": (bool, True)}

# Annotation and default of every argument of a layer.
_SIGNATURES: dict[str, dict[str, tuple[Any, Any]]] = {
    "Activation": {"activation": (Activation, REQUIRED)},
    "AveragePooling1D": {"pool_size": (FixedSize, REQUIRED), **_POOL_1D},
    "AveragePooling2D": {"pool_size": (Window, REQUIRED), **_POOL},
    "Conv1D": {
        "filters": (Size, REQUIRED),
        "kernel_size": (FixedSize, REQUIRED),
        "strides": (FixedSize, 1),
        "padding": (Literal["valid", "same", "causal"], "valid"),
        "dilation_rate": (FixedSize, 1),
        "kernel_initializer": (Initializer, "glorot_uniform"),
        **_COMMON,
    },
    "Conv2D": {
        "filters": (Size, REQUIRED),
        "kernel_size": (KernelSize, REQUIRED),
        "strides": (Window, (1, 1)),
        "padding": (Padding, "valid"),
        "dilation_rate": (Window, (1, 1)),
        "kernel_initializer": (Initializer, "glorot_uniform"),
        **_COMMON,
    },
    "Cropping2D": {"cropping": (Edge, (0, 0))},
    "Dense": {"units": (Size, REQUIRED), "kernel_initializer": (Initializer, "glorot_uniform"), **_COMMON},
    "DepthwiseConv2D": {
        "kernel_size": (KernelSize, REQUIRED),
        "strides": (Window, (1, 1)),
        "padding": (Padding, "valid"),
        "depthwise_initializer": (Initializer, "glorot_uniform"),
        **_COMMON,
    },
    "ELU": {"alpha": (Slope, 1.0)},
    "Flatten": {},
    "GlobalAveragePooling1D": {},
    "GlobalAveragePooling2D": {},
    "GlobalMaxPooling1D": {},
    "GlobalMaxPooling2D": {},
    "GroupNormalization": {"groups": (Annotated[int, Range(low=1, high=LARGEST_SIZE)], 32), **_SCALED},
    "Identity": {},
    "LayerNormalization": _SCALED,
    "LeakyReLU": {"negative_slope": (Slope, 0.3)},
    "MaxPooling1D": {"pool_size": (FixedSize, 2), **_POOL_1D},
    "MaxPooling2D": {"pool_size": (Window, (2, 2)), **_POOL},
    "ReLU": {"max_value": (NotNegative | None, None), "negative_slope": (Slope, 0.0), "threshold": (Slope, 0.0)},
    "UpSampling2D": {"size": (Window, (2, 2)), "interpolation": (Literal["nearest", "bilinear"], "nearest")},
    "ZeroPadding2D": {"padding": (Edge, (1, 1))},
}
KERAS_LAYERS = {
    layer: {name: Option(name, read_annotation(form), default, "") for name, (form, default) in arguments.items()}
    for layer, arguments in _SIGNATURES.items()
}
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
    return registry.options("layers", name) if name in registry.names("layers") else KERAS_LAYERS[name]
