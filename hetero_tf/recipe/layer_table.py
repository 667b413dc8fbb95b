"""Layers that a recipe may use, with an annotation of every argument; all others are rejected.

Keras layers are listed here. `registry` reads the layers of this package and of plug-ins from their source.
"""

from typing import Annotated, Any, Literal

from hetero_tf.base import registry
from hetero_tf.base.constraints import (
    LARGEST_SIZE,
    Constraint,
    Epsilon,
    NotNegative,
    Range,
    Size,
    Text,
    read_annotation,
)
from hetero_tf.base.errors import did_you_mean, find_nearest
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

_COMMON = {"use_bias": bool, "activation": Activation | None, "bias_initializer": ConstantInitializer}
_POOL = {"pool_size": Window, "strides": Window | None, "padding": Padding}

KERAS_LAYERS: dict[str, dict[str, Any]] = {
    "Activation": {"activation": Activation},
    "AveragePooling2D": _POOL,
    "Conv2D": {
        "filters": Size,
        "kernel_size": KernelSize,
        "strides": Window,
        "padding": Padding,
        "dilation_rate": Window,
        "kernel_initializer": Initializer,
        **_COMMON,
    },
    "Cropping2D": {"cropping": Edge},
    "Dense": {"units": Size, "kernel_initializer": Initializer, **_COMMON},
    "DepthwiseConv2D": {
        "kernel_size": KernelSize,
        "strides": Window,
        "padding": Padding,
        "depthwise_initializer": Initializer,
        **_COMMON,
    },
    "ELU": {"alpha": Slope},
    "Flatten": {},
    "GlobalAveragePooling2D": {},
    "GlobalMaxPooling2D": {},
    "GroupNormalization": {
        "groups": Annotated[int, Range(low=1, high=LARGEST_SIZE)],
        "epsilon": Epsilon,
        "center": bool,
        "scale": bool,
    },
    "Identity": {},
    "LayerNormalization": {"epsilon": Epsilon, "center": bool, "scale": bool},
    "LeakyReLU": {"negative_slope": Slope},
    "MaxPooling2D": _POOL,
    "ReLU": {"max_value": NotNegative | None, "negative_slope": Slope, "threshold": Slope},
    "UpSampling2D": {"size": Window, "interpolation": Literal["nearest", "bilinear"]},
    "ZeroPadding2D": {"padding": Edge},
}
REQUIRED = {
    "Activation": {"activation"},
    "AveragePooling2D": {"pool_size"},
    "Conv2D": {"filters", "kernel_size"},
    "Dense": {"units"},
    "DepthwiseConv2D": {"kernel_size"},
}
ADVICE = {
    "BatchNormalization": "a round discards its moving averages, so tests would use stale ones; "
    "use StaticBatchNormalization",
    "Softmax": "a model returns logits and the loss applies softmax; leave it out",
    "Reshape": "its target shape cannot depend on the width of a level; use GlobalAveragePooling2D",
    "MultiHeadAttention": "its projections have no Scaler; use TransformerBlock",
    **dict.fromkeys(
        ("Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"),
        "a recipe is a sequence of layers, and this layer merges branches; use a block such as PreActivationBlock, or "
        "build the model in Python (BUILD.md, In Python)",
    ),
    **dict.fromkeys(
        ("Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "RNN", "SimpleRNN", "StackedRNNCells"),
        "use LSTM or GRU, or write a layer and load it with --plugin",
    ),
    **dict.fromkeys(
        ("CategoryEncoding", "Discretization", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"),
        "the input converts data to numbers before the model; see data: labelled_text or csv, and input: sequences or "
        "table",
    ),
    **dict.fromkeys(
        ("Normalization", "Rescaling"),
        "the input normalises images; set input.mean and input.std, which every exported model includes",
    ),
    **dict.fromkeys(
        ("RandomBrightness", "RandomContrast", "RandomCrop", "RandomFlip", "RandomRotation", "RandomTranslation"),
        "the input augments images; set input.augment, such as crop_flip",
    ),
    **dict.fromkeys(("Input", "InputLayer"), "the data define the input shape; leave it out"),
    **dict.fromkeys(
        ("AveragePooling1D", "GlobalAveragePooling1D", "GlobalMaxPooling1D", "MaxPooling1D"),
        "use ClassTokenReadout after patch tokens, and LSTM or GRU without return_sequences after an Embedding",
    ),
    **dict.fromkeys(("Permute", "RepeatVector"), "the axes of a feature map cannot change; use GlobalAveragePooling2D"),
    "SeparableConv2D": "use SeparableBlock, or DepthwiseConv2D and Conv2D",
    **dict.fromkeys(
        ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"),
        "a recipe cannot contain code; write a layer and load it with --plugin",
    ),
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


def arguments(name: str) -> tuple[dict[str, Constraint], set[str]]:
    """Return `({argument: Constraint}, required names)` of an allowed layer."""
    if name in registry.names("layers"):
        options = registry.options("layers", name)
        constraints = {option.name: option.constraint for option in options.values()}
        return constraints, {option.name for option in options.values() if option.required}
    constraints = {argument: read_annotation(annotation) for argument, annotation in KERAS_LAYERS[name].items()}
    return constraints, REQUIRED.get(name, set())
