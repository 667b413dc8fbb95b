"""Group normalisation of K clients: the Keras layer with K times the groups."""

import keras


def group_normalization(groups: int = 32, *, clients: int, **arguments) -> keras.layers.Layer:
    """Return a `keras.layers.GroupNormalization` for channel form; no group spans two clients.

    Args:
        groups: Number of groups per client; -1: one group per channel.
        clients: Number of clients computed together.
        arguments: Arguments of the Keras layer.
    """
    return keras.layers.GroupNormalization(groups if groups == -1 else groups * clients, **arguments)
