"""Masks of single entries: a plug-in of `methods.masks` bound to one level's share and variables."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.recipe.schema import Recipe


def spread(of_variables: np.ndarray, sizes: Sequence[int]) -> tf.Tensor:
    """Returns the numbers of variables, [..., variables], at each of their values, [..., values].

    Args:
        of_variables: The numbers.
        sizes: How many values each variable has.
    """
    # Neighbours with the same numbers are one broadcast. XLA would spend minutes on a gather by computed positions.
    blocks = [
        (np.array(numbers, of_variables.dtype), sum(sizes[position] for position in positions))
        for numbers, positions in itertools.groupby(range(len(sizes)), lambda one: of_variables[..., one].tolist())
    ]
    return tf.concat([tf.broadcast_to(numbers[..., None], [*numbers.shape, many]) for numbers, many in blocks], -1)


# Names that Keras gives to the scales and offsets of its norms; ours have them too.
OF_NORMS = ("gamma", "beta")


@dataclass(frozen=True)
class EntryMask:
    """The mask of the clients of one level, whose trainable values are rows [K, P].

    Attributes:
        prepare: `(start [K, P], key int32 [K, 3]) -> state`, once a round.
        mask: `(weights [K, P], state) -> [K, P]`, what the weights are multiplied by in the forward pass.
        counts: `(weights, start, state) -> bool [K, P]`, which trained entries are merged.
    """

    prepare: Callable
    mask: Callable
    counts: Callable


def build_entry_mask(recipe: Recipe, level: str, variables: list, networks: int = 1) -> EntryMask | None:
    """Builds the mask of a level; None where the recipe has none.

    Args:
        variables: Trainable Keras variables of one network of a client, in the order of its row.
        networks: Of a client: 1 and its peers.
    """
    plugin = recipe.round.mask
    if plugin is None:
        return None
    module, options = registry.find("masks", plugin.name), plugin.options
    maskable = [variable.path.rpartition("/")[2] not in OF_NORMS for variable in variables] * networks
    sizes = [math.prod(variable.shape) for variable in variables] * networks
    share = recipe.levels.entries.get(level, 1.0)
    number = max(1, int(share * sum(size for size, one in zip(sizes, maskable) if one)))

    def prepare(start, key):
        return module.prepare(start, key, spread(np.array(maskable), sizes), number, **options)

    return EntryMask(prepare, functools.partial(module.mask, **options), functools.partial(module.counts, **options))


def masked_values(mask: EntryMask, values: list[tf.Tensor], key: tf.Tensor) -> list[tf.Tensor]:
    """The values of one network as a level predicts with them: those outside the mask of a key int32 [3] are 0."""
    row = tf.concat([tf.reshape(value, [-1]) for value in values], 0)[None]
    row = row * mask.mask(row, mask.prepare(row, key[None]))
    sizes = [math.prod(value.shape) for value in values]
    return [tf.reshape(part, value.shape) for part, value in zip(tf.split(row[0], sizes), values)]
