"""Group normalisation of K clients: Keras' own, with K times the groups."""

import keras


def group_normalization(groups: int = 32, *, clients: int, **arguments) -> keras.layers.Layer:
    """`keras.layers.GroupNormalization` whose groups never reach from one client to the next, in channel form.

    Args:
        groups: Of one client; -1 is one group per channel.
        clients: Clients computed at once.
        arguments: As Keras takes them.
    """
    return keras.layers.GroupNormalization(groups if groups == -1 else groups * clients, **arguments)
