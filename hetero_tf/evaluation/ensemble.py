"""The networks of an ensemble in another order: levels predict with the first ones of a state."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from hetero_tf.rounds.state import State


def chosen(state: State, order: Sequence[int] | np.ndarray) -> State:
    """Returns the state with these of its networks, in this order."""
    weights = {path: tf.gather(value, order) for path, value in state.weights.items()}
    return dataclasses.replace(state, weights=weights)


def best_first(state: State, networks: int, accuracy: Callable[[State], float]) -> State:
    """Returns the state with its networks sorted by accuracy, the best first.

    Args:
        state: Of an ensemble whose networks are all merged.
        networks: How many there are.
        accuracy: Of the first network of a state.

    Reference: authors' code of SplitMix, which reverses the ascending order.
    """
    found = [accuracy(chosen(state, [network])) for network in range(networks)]
    return chosen(state, np.argsort(found, kind="stable")[::-1])
