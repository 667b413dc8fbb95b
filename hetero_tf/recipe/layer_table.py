"""The layers a recipe may name, with the type and range of every argument; all others are refused.

Ordinary Keras layers stand here as data. Our own and plugged-in layers are read from their source by `registry`.
"""

from hetero_tf.base import registry
from hetero_tf.base.constraints import LARGEST_SIZE, Constraint
from hetero_tf.base.errors import did_you_mean, nearest
from hetero_tf.recipe.nodes import show

ACTIVATIONS = (
    "elu",
    "gelu",
    "hard_silu",
    "leaky_relu",
    "linear",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "tanh",
)
INITIALIZERS = (
    "fan_in_uniform",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "zeros",
)

_SIZE = Constraint("int", low=1, high=LARGEST_SIZE, sizes=True)
_WINDOW = Constraint("pair", low=1, high=1000)
# See `constraints.OddSize`.
_KERNEL_SIZE = Constraint("pair", low=1, high=127)
_EDGE = Constraint("pair", low=0, high=1000)
_FLAG = Constraint("bool")
_PADDING = Constraint("str", choices=("valid", "same"))
_ACTIVATION = Constraint("str", optional=True, choices=ACTIVATIONS)
_KERNEL = Constraint("str", choices=INITIALIZERS)
# A bias has no fan-in, so only constants can start it.
_BIAS = Constraint("str", choices=("zeros", "ones"))
_EPSILON = Constraint("float", above=0.0, high=1.0)
_SLOPE = Constraint("float", low=0.0, high=1000.0)

_COMMON = {"use_bias": _FLAG, "activation": _ACTIVATION, "bias_initializer": _BIAS}
_POOL = {"pool_size": _WINDOW, "strides": Constraint("pair", optional=True, low=1, high=1000), "padding": _PADDING}

KERAS_LAYERS = {
    "Activation": {"activation": Constraint("str", choices=ACTIVATIONS)},
    "AveragePooling2D": _POOL,
    "Conv2D": {
        "filters": _SIZE,
        "kernel_size": _KERNEL_SIZE,
        "strides": _WINDOW,
        "padding": _PADDING,
        "dilation_rate": _WINDOW,
        "kernel_initializer": _KERNEL,
        **_COMMON,
    },
    "Cropping2D": {"cropping": _EDGE},
    "Dense": {"units": _SIZE, "kernel_initializer": _KERNEL, **_COMMON},
    "DepthwiseConv2D": {
        "kernel_size": _KERNEL_SIZE,
        "strides": _WINDOW,
        "padding": _PADDING,
        "depthwise_initializer": _KERNEL,
        **_COMMON,
    },
    "ELU": {"alpha": _SLOPE},
    "Flatten": {},
    "GlobalAveragePooling2D": {},
    "GlobalMaxPooling2D": {},
    "GroupNormalization": {
        "groups": Constraint("int", low=1, high=LARGEST_SIZE),
        "epsilon": _EPSILON,
        "center": _FLAG,
        "scale": _FLAG,
    },
    "Identity": {},
    "LayerNormalization": {"epsilon": _EPSILON, "center": _FLAG, "scale": _FLAG},
    "LeakyReLU": {"negative_slope": _SLOPE},
    "MaxPooling2D": _POOL,
    "ReLU": {"max_value": Constraint("float", optional=True, low=0.0), "negative_slope": _SLOPE, "threshold": _SLOPE},
    "UpSampling2D": {"size": _WINDOW, "interpolation": Constraint("str", choices=("nearest", "bilinear"))},
    "ZeroPadding2D": {"padding": _EDGE},
}
REQUIRED = {
    "Activation": {"activation"},
    "AveragePooling2D": {"pool_size"},
    "Conv2D": {"filters", "kernel_size"},
    "Dense": {"units"},
    "DepthwiseConv2D": {"kernel_size"},
}
ADVICE = {
    "BatchNormalization": "a round drops its moving averages, so clients would be tested with stale ones; "
    "use StaticBatchNormalization",
    "Softmax": "a model gives logits and the loss applies softmax; leave it out",
    "Reshape": "a shape cannot follow the width of a level; use GlobalAveragePooling2D",
    "MultiHeadAttention": "its projections have no Scaler; use TransformerBlock",
    **dict.fromkeys(
        ("Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"),
        "a recipe is a chain, and this layer joins branches; use a block such as PreActivationBlock, or build a model "
        "of your own in Python (BUILD.md, In Python)",
    ),
    **dict.fromkeys(
        ("Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "RNN", "SimpleRNN", "StackedRNNCells"),
        "use LSTM or GRU, or write a layer and pass it by --plugin",
    ),
    **dict.fromkeys(
        ("CategoryEncoding", "Discretization", "Hashing", "IntegerLookup", "StringLookup", "TextVectorization"),
        "the data become numbers before the model; see data: labelled_text or csv, and input: sequences or table",
    ),
    **dict.fromkeys(
        ("Normalization", "Rescaling"),
        "the input normalises; set input.mean and input.std, which are part of every exported model",
    ),
    **dict.fromkeys(
        ("RandomBrightness", "RandomContrast", "RandomCrop", "RandomFlip", "RandomRotation", "RandomTranslation"),
        "the input augments; set input.augment, such as crop_flip",
    ),
    **dict.fromkeys(("Input", "InputLayer"), "the data say the shape of an input; leave it out"),
    **dict.fromkeys(
        ("AveragePooling1D", "GlobalAveragePooling1D", "GlobalMaxPooling1D", "MaxPooling1D"),
        "use ClassTokenReadout behind tokens, and LSTM or GRU without return_sequences behind words",
    ),
    **dict.fromkeys(("Permute", "RepeatVector"), "a recipe keeps the axes of its maps; use GlobalAveragePooling2D"),
    "SeparableConv2D": "use SeparableBlock, or DepthwiseConv2D and Conv2D",
    **dict.fromkeys(
        ("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"),
        "a recipe is data and cannot hold code; write a layer and pass it by --plugin",
    ),
}


def known_layers() -> list[str]:
    """The names of all layers a recipe may use, sorted."""
    return sorted({*KERAS_LAYERS, *registry.names("layers")})


def refused(name: str) -> str | None:
    """Why `name` is not a layer, as a sentence part, or None if it is one."""
    if name in known_layers():
        return None
    if name in ADVICE:
        return f"{name} is not allowed; {ADVICE[name]}"
    if "." in name or ":" in name:
        return f"{show(name)} is not a layer; layers are named by class alone, own modules come by --plugin"
    near = nearest(name, known_layers())
    advice = "" if near else "; pass a layer of your own by --plugin (BUILD.md, Add a part)"
    return f"unknown layer {show(name)}{advice}{did_you_mean(name, known_layers())}"


def arguments(name: str) -> tuple[dict[str, Constraint], set[str]]:
    """`({argument: Constraint}, required names)` of a layer that `refused` lets pass."""
    if name in registry.names("layers"):
        found = registry.options("layers", name)
        constraints = {option.name: option.constraint for option in found.values()}
        return constraints, {option.name for option in found.values() if option.required}
    return KERAS_LAYERS[name], REQUIRED.get(name, set())
