"""Sums of clipped changes with noise: differential privacy of the clients of unequal sub-models.

A masked mean divides by the number of clients that cover an entry in this round, so that one client moves it by up to
its whole clip. Here the divisor of an entry is the expected number of these clients, a constant of the recipe; the sum
moves by at most the clip whatever the sub-models are, and the noise is added to every entry that a client may change.
"""

import numpy as np
import tensorflow as tf

from hetero_tf.models.state import StateRows
from hetero_tf.rounds.block_training import BlockResult, RoundScalars
from hetero_tf.rounds.merge import axis_mask, coverage
from hetero_tf.rounds.round_setup import RoundSetup, Submodel
from hetero_tf.rounds.submodel_cut import merged_coordinates


def sum_clipped(
    setup: RoundSetup, submodel: Submodel, state: StateRows, result: BlockResult, counts: tf.Tensor
) -> tf.Tensor:
    """Return the sum of the changes of a block's clients, each clipped over the values that are merged: [values].

    Args:
        counts: bool [K], the clients that are merged.
    """
    assert setup.private is not None
    is_merged = submodel.cut.merged_columns(result.merged, result.completed_stages)
    changes = submodel.block.network_rows(result.values) - submodel.cut.gather(state.weights, result.coordinates)
    # tf.where instead of a product with a mask: NaN * 0 is NaN.
    changes = tf.where(counts[:, None] & is_merged, changes, tf.zeros_like(changes))
    clip = tf.constant(setup.private.clip, changes.dtype)
    factors = tf.minimum(tf.math.divide_no_nan(clip, tf.norm(changes, axis=1, keepdims=True)), 1)
    return submodel.cut.scatter_sum(changes * factors, result.merged, result.completed_stages)


def expected_coverage(setup: RoundSetup) -> tf.Tensor:
    """Return the expected number of clients of a round that change each entry of the global row, [values]."""
    assert setup.private is not None
    layout, zero, rows = setup.layout, tf.constant(0), []
    labels = next((axis.size for axis in layout.cut.distinct if axis.label), 0)
    for submodel in setup.submodels:
        coordinates = submodel.cut.coordinates(setup.algorithm.submodel, zero, zero, zero, tf.range(labels), zero)
        rows.append(merged_coordinates(coordinates, tf.ones([labels], tf.bool)))
    masks = {axis: tf.stack([axis_mask(axis, row, layout.dtype) for row in rows]) for axis in layout.cut.distinct}
    kinds, clients = layout.first_merged_stage, tf.constant(setup.private.clients, layout.dtype)
    weights = {kind: clients * tf.constant(np.asarray(kind) > 0, layout.dtype) for kind in set(kinds)}
    return coverage(layout.cut, masks, weights, kinds)


def private_sum(
    setup: RoundSetup, state: StateRows, total: tf.Tensor, scalars: RoundScalars
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the sum and the coverage of `merge_updates` for a sum of clipped changes, with the noise of the round."""
    expected = expected_coverage(setup)
    # Entries that no client changes have no coverage, and keep their values whatever the sum is.
    return expected * state.weights + total + _noise(scalars, total), expected


def _noise(scalars, like):
    """Return the noise of a round: a sum of normal tensors, whose last ones may have the deviation 0."""
    seeds, deviations = scalars.noise

    def summand(index):
        normal = tf.random.stateless_normal(tf.shape(like), seeds[index], dtype=like.dtype, alg="philox")
        return tf.cast(deviations[index], like.dtype) * normal

    if deviations.shape[0] == 1:
        return summand(0)
    # The noise of the first rounds has few summands.
    count = tf.cast(tf.where(deviations != 0)[-1, 0], tf.int32) + 1
    return tf.while_loop(
        lambda index, _: index < count,
        lambda index, noise: (index + 1, noise + summand(index)),
        (0, tf.zeros_like(like)),
        parallel_iterations=1,
    )[1]
