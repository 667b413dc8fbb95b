"""Masks of single entries: a plug-in of `methods.masks`, bound to one level's share and variables."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.recipe.schema import Recipe


def broadcast_to_values(variable_numbers: np.ndarray, sizes: Sequence[int]) -> tf.Tensor:
    """Broadcast one number for each variable, [..., variables], to its values, [..., values]."""
    # Adjacent variables with equal numbers are one broadcast. XLA would spend minutes on a gather by computed indices.
    blocks = [
        (np.array(numbers, variable_numbers.dtype), sum(sizes[position] for position in positions))
        for numbers, positions in itertools.groupby(
            range(len(sizes)), lambda variable: variable_numbers[..., variable].tolist()
        )
    ]
    return tf.concat([tf.broadcast_to(numbers[..., None], [*numbers.shape, size]) for numbers, size in blocks], -1)


# Names of the scales and offsets of norms, in Keras and in this package.
NORM_WEIGHTS = ("gamma", "beta")


@dataclass(frozen=True)
class EntryMask:
    """The mask of the clients of one level, whose trainable values are rows [K, P].

    Attributes:
        prepare: `(start [K, P], key int32 [K, 3]) -> state`, once a round.
        mask: `(weights [K, P], state) -> [K, P]`, factors of the weights in the forward pass.
        counts: `(weights, start, state) -> bool [K, P]`, the trained entries that are merged.
    """

    prepare: Callable
    mask: Callable
    counts: Callable


def build_entry_mask(recipe: Recipe, level: str, variables: list, networks: int = 1) -> EntryMask:
    """Build the mask of a level for a recipe with `round.mask`.

    Args:
        variables: Trainable Keras variables of one network of a client, in the order of its row.
        networks: Number of networks of a client: 1 and its peers.
    """
    plugin = recipe.round.mask
    assert plugin is not None
    maskable = [variable.path.rpartition("/")[2] not in NORM_WEIGHTS for variable in variables] * networks
    sizes = [math.prod(variable.shape) for variable in variables] * networks
    share = recipe.levels.entries.get(level, 1.0)
    num_entries = max(1, int(share * sum(size for size, is_maskable in zip(sizes, maskable) if is_maskable)))

    prepare, mask, counts = (registry.function_of("masks", plugin, name) for name in ("prepare", "mask", "counts"))

    def prepare_level(start, key):
        return prepare(start, key, broadcast_to_values(np.array(maskable), sizes), num_entries)

    return EntryMask(prepare_level, mask, counts)


def masked_values(mask: EntryMask, values: list[tf.Tensor], key: tf.Tensor) -> list[tf.Tensor]:
    """Set the values of one network outside a level's mask to 0, for its predictions; `key`: int32 [3]."""
    row = tf.concat([tf.reshape(value, [-1]) for value in values], 0)[None]
    row = row * mask.mask(row, mask.prepare(row, key[None]))
    sizes = [math.prod(value.shape) for value in values]
    return [tf.reshape(part, value.shape) for part, value in zip(tf.split(row[0], sizes), values)]
