"""Adapters in a round: the factors that it trains, and the sums and the merge of their products.

A product is a kernel [channels, outputs]. During a round each block of clients in flight has one for each adapter and,
with products by ranks, for each range of ranks; the cohort has one more sum of each. All products are a row, like the
global values, so their cut, coverage and mean are those of other values.
"""

import math

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import broadcast_to_values
from hetero_tf.models.global_layout import GlobalLayout
from hetero_tf.rounds.merge import masked_mean
from hetero_tf.rounds.round_setup import Submodel
from hetero_tf.rounds.submodel_cut import Coordinates, concat_columns


def trained_values(layout: GlobalLayout, round: tf.Tensor, submodel: Submodel | None = None) -> tf.Tensor | None:
    """Return which values the turn of a round trains, bool [values]; None if every turn trains all values.

    Args:
        submodel: Selects the trainable values of its clients; None: all global values.
    """
    if layout.adapters is None:
        return None
    positions, sizes, networks = tuple(range(len(layout.cut.shapes))), list(map(math.prod, layout.cut.shapes)), 1
    if submodel is not None:
        block, networks = submodel.block, submodel.block.networks
        positions, sizes = submodel.positions[: block.learned // networks], block.sizes[: block.learned]
    turns = np.array(layout.adapters.trained(positions))
    return None if turns.all() else broadcast_to_values(np.tile(turns, networks), sizes)[round % len(turns)]


def sum_products(
    layout: GlobalLayout,
    submodel: Submodel,
    rows: tf.Tensor,
    weights: tf.Tensor,
    coordinates: list[Coordinates],
    completed_stages: tf.Tensor | None,
) -> tf.Tensor:
    """Return the weighted sum of the products of a block's clients, [values of the products].

    Args:
        submodel: The clients' sub-model.
        rows: [K, values of the sub-model], zeros for clients that do not count.
        weights: [K], weights of the clients in the merge.
        coordinates: Those that are merged, of each client.
        completed_stages: See `SubmodelCut.scatter_sum`.
    """
    adapters, cut, clients = layout.adapters, submodel.factors, range(len(coordinates))
    assert adapters is not None and cut is not None  # of a rule with products
    if not cut.columns:
        return tf.zeros([sum(map(math.prod, adapters.cut.shapes))], rows.dtype)
    stages = [None if completed_stages is None else completed_stages[slot : slot + 1] for slot in clients]
    # Global factors of each client, zeros at ranks and coordinates that it lacks: [K, values of the factors].
    factors = tf.stack([cut.scatter(rows[slot], coordinates[slot], stages[slot]) for slot in clients])
    factors = _split_factors(layout, factors)
    sums = []
    for (number, first, end), contained in zip(adapters.products, adapters.cut.contained):
        adapter = adapters.adapters[number]
        a, b = factors[adapter.a][..., first:end], factors[adapter.b][:, first:end]
        if contained[submodel.number]:
            # One product of all clients' ranks: [channels, K * ranks] and [K * ranks, outputs].
            left = tf.reshape(tf.transpose(weights[:, None, None] * a, [1, 0, 2]), [a.shape[1], -1])
            sums.append(tf.reshape(left @ tf.reshape(b, [-1, b.shape[2]]), [-1]))
        else:
            sums.append(tf.zeros([a.shape[1] * b.shape[2]], rows.dtype))
    return concat_columns(sums)


def _split_factors(layout, rows):
    """Split rows [K, values of the factors] into `{position: [K, channels, rank] or [K, rank, outputs]}`."""
    adapters, shapes = layout.adapters, layout.cut.shapes
    values = dict(
        zip(adapters.factors, tf.split(rows, [math.prod(shapes[at]) for at in adapters.factors], axis=1), strict=True)
    )
    for adapter in adapters.adapters:
        rank = shapes[adapter.b][0]
        values[adapter.a] = tf.reshape(values[adapter.a], [rows.shape[0], -1, rank])
        values[adapter.b] = tf.reshape(values[adapter.b], [rows.shape[0], rank, -1])
    return values


def merge_products(
    layout: GlobalLayout, old: tf.Tensor, merged: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
    """Return the merged global row with the adapters and bases that their rule combines.

    Args:
        old: Global row [values] before the round.
        merged: The same after the merge of entries.
        total: Sum of weight * product over the clients that have it, [values of the products].
        coverage: Sum of their weights, likewise.
        key: int32 [2], (seed, round).
    """
    adapters, sizes = layout.adapters, list(map(math.prod, layout.cut.shapes))
    assert adapters is not None and adapters.merge.combine is not None  # of a rule with products
    before, values = tf.split(old, sizes), tf.split(merged, sizes)
    old_factors, mean_factors = (
        [_factors(layout, row, adapter) for adapter in adapters.adapters] for row in (before, values)
    )
    products, are_trained = _mean_products(adapters, old_factors, total, coverage)
    for number, adapter in enumerate(adapters.adapters):
        key_of_adapter = tf.concat([key, [number]], 0)
        factors, change = adapters.merge.combine(
            old_factors[number], mean_factors[number], products[number], key_of_adapter
        )
        new = {adapter.a: factors[0], adapter.b: factors[1]}
        if change is not None:
            new[adapter.base] = before[adapter.base] + adapter.scale * tf.reshape(change, [-1])
        for position, value in new.items():
            # An adapter that no client has trained keeps its bits.
            values[position] = tf.where(are_trained[number], tf.reshape(value, [-1]), before[position])
    return tf.concat(values, 0)


def _factors(layout, values, adapter):
    """Return the factors of an adapter, [channels, rank] and [rank, outputs], from the list of all global values."""
    rank = layout.cut.shapes[adapter.b][0]
    return tf.reshape(values[adapter.a], [-1, rank]), tf.reshape(values[adapter.b], [rank, -1])


def _mean_products(adapters, old_factors, total, coverage):
    """Return the mean product of each adapter, [channels, outputs], and whether some client has trained it."""
    sizes = list(map(math.prod, adapters.cut.shapes))
    parts: list[list[tf.Tensor]] = [[] for _ in adapters.adapters]
    trained: list[list[tf.Tensor]] = [[] for _ in adapters.adapters]
    for (number, first, end), *sums in zip(adapters.products, tf.split(total, sizes), tf.split(coverage, sizes)):
        a, b = old_factors[number]
        old = a[:, first:end] @ b[first:end]
        # Ranks and entries without a client keep the product of the old factors.
        parts[number].append(masked_mean(old, *(tf.reshape(values, old.shape) for values in sums)))
        trained[number].append(tf.reduce_any(sums[1] > 0))
    return list(map(tf.add_n, parts)), list(map(tf.reduce_any, trained))
