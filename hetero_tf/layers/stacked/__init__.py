"""Keras layers that mix channels, for K clients together: selected by the Keras name, with the Keras arguments.

The variables of these classes, and of every layer with an argument `clients`, contain the values of K clients in one
of two layouts. Either the last axis is K times as long, client by client, or a leading axis has K entries, followed by
axes of size 1 if broadcasting needs them. One client uses the Keras class, or one of `MIXED` under a mixed policy.
"""

import functools
from collections.abc import Callable

import keras

from hetero_tf.layers.stacked.conv1d import StackedConv1D, pooling_1d
from hetero_tf.layers.stacked.dense import MixedConv2D, MixedDense, StackedDense
from hetero_tf.layers.stacked.forms import StackedFlatten
from hetero_tf.layers.stacked.normalization import StackedGroupNormalization, StackedLayerNormalization

POOLING_1D = ("AveragePooling1D", "GlobalAveragePooling1D", "GlobalMaxPooling1D", "MaxPooling1D")
STACKED: dict[str, Callable] = {
    "Conv1D": StackedConv1D,
    "Dense": StackedDense,
    "Flatten": StackedFlatten,
    "GroupNormalization": StackedGroupNormalization,
    "LayerNormalization": StackedLayerNormalization,
    **{name: functools.partial(pooling_1d, name) for name in POOLING_1D},
}
# Keras layers that support a mixed policy. A DepthwiseConv2D has too few products to benefit.
MIXED = {"Conv2D": MixedConv2D, "Dense": MixedDense}


def keras_layer(name: str, clients: int, mixed: bool = False) -> Callable[..., keras.layers.Layer]:
    """Return the constructor of the Keras layer `name` for `clients` clients; it accepts the arguments of a recipe."""
    if clients == 1 or name not in STACKED:
        return MIXED[name] if mixed and name in MIXED else getattr(keras.layers, name)
    return functools.partial(STACKED[name], clients=clients)
