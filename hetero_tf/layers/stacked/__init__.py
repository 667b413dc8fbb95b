"""Keras layers that mix channels, for K clients at once: found by the Keras name, with the Keras arguments.

Every class here and every layer with an argument `clients` keeps K clients' values in its variables, and says in one of
two ways how: the last axis is K times as long, client by client, or K leads, with ones behind it where that helps
broadcasting. For one client the Keras class itself is used, or one of `MIXED` under a mixed policy.
"""

import functools
from collections.abc import Callable

import keras

from hetero_tf.layers.stacked.dense import StackedDense
from hetero_tf.layers.stacked.flatten import StackedFlatten
from hetero_tf.layers.stacked.group_normalization import group_normalization
from hetero_tf.layers.stacked.layer_normalization import StackedLayerNormalization
from hetero_tf.layers.stacked.mixed import MixedConv2D, MixedDense

STACKED: dict[str, Callable] = {
    "Dense": StackedDense,
    "Flatten": StackedFlatten,
    "GroupNormalization": group_normalization,
    "LayerNormalization": StackedLayerNormalization,
}
# Keras' own layers that a mixed policy suits. A DepthwiseConv2D has too few products to gain from it.
MIXED = {"Conv2D": MixedConv2D, "Dense": MixedDense}


def keras_layer(name: str, clients: int, mixed: bool = False) -> Callable[..., keras.layers.Layer]:
    """What makes the layer `name` of Keras for so many clients; takes the arguments that a recipe may give."""
    if clients == 1 or name not in STACKED:
        return MIXED[name] if mixed and name in MIXED else getattr(keras.layers, name)
    return functools.partial(STACKED[name], clients=clients)
