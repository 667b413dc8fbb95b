"""The merge of a round: means of the clients' results, the server's step on them, and the products of adapters.

A product is a kernel [channels, outputs]. During a round each block of clients in flight has one for each adapter and,
with products by ranks, for each range of ranks; the cohort has one more sum of each. All products are a row, like the
global values, so their cut, coverage and mean are those of other values.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.models.entry_masks import broadcast_to_values
from hetero_tf.models.global_layout import GlobalLayout
from hetero_tf.models.state import StateRows
from hetero_tf.rounds.round_setup import RoundSetup, Submodel
from hetero_tf.rounds.submodel_cut import Coordinates, concat_columns, positions_in


def axis_mask(axis: Axis, coordinates: Coordinates, dtype: tf.DType) -> tf.Tensor:
    """Return [size + extra], 1 where a client covers the coordinate of an axis and 0 elsewhere."""
    # Coordinates without a position in the index get its length.
    index = coordinates[axis]
    positions = positions_in(index, axis.size + axis.extra)
    known = tf.get_static_value(positions)
    if known is not None:
        return tf.constant(known < index.shape[0], dtype)
    return tf.cast(positions < tf.shape(index)[0], dtype)


def coverage(
    cut: Cut,
    masks: dict[Axis, tf.Tensor],
    client_weights: Mapping[Any, tf.Tensor],
    kinds: Sequence[Any],
    zeros: bool = False,
) -> tf.Tensor:
    """Return the sum of the weights of the clients that cover each entry of the global row, [values].

    An entry is covered if all its axes are covered. So the sum over clients is a contraction of small masks instead of
    a sum of full-size ones.

    Args:
        masks: `{Axis: [clients, size + extra]}`, stacked results of `axis_mask`.
        client_weights: For each kind of variables [clients], 0 for clients that do not count for them.
        kinds: The kind of each variable.
        zeros: Whether a client also counts for channels or ranks that it lacks, with zeros in the sum.

    Reference for `zeros`: the padding that HetLoRA (Cho et al. 2024, arXiv 2401.06432) and others start from.
    """

    def masked_axes(position):
        # Uncut axes are covered by every client that counts; labels and networks are never padded.
        axes = [axis if axis and (axis.label or axis.member or not zeros) else None for axis in cut.axes[position]]
        return tuple(axes) if any(axes) else ()

    # Variables with the same cut share one contraction: the graph of a deep network is much smaller.
    @functools.cache
    def contract_masks(axes, kind):
        names = [letter for letter, axis in zip("abcdefgh", axes) if axis is not None]
        operands = [masks[axis] for axis in axes if axis is not None]
        # z: clients; one letter for every cut axis of the variable.
        equation = ",".join(["z", *("z" + name for name in names)]) + "->" + "".join(names)
        summed = tf.einsum(equation, client_weights[kind], *operands)
        return tf.reshape(summed, [1 if axis is None else axis.size + axis.extra for axis in axes])

    @functools.cache
    def flat(axes, kind, shape):
        return tf.reshape(tf.broadcast_to(contract_masks(axes, kind), shape), [-1])

    pieces = []
    # Adjacent variables with one coverage value for all entries are broadcast in one operation.
    for key, adjacent in itertools.groupby(
        range(len(kinds)), lambda position: (masked_axes(position), kinds[position])
    ):
        shapes, (axes, kind) = [cut.shapes[position] for position in adjacent], key
        if not axes:
            shapes = [(sum(map(math.prod, shapes)),)]
        pieces += [flat(axes, kind, shape) for shape in shapes]
    return concat_columns(pieces)


def merge_updates(
    setup: RoundSetup,
    state: StateRows,
    total: tf.Tensor,
    coverage: tf.Tensor,
    memory_change: tf.Tensor | None = None,
    clients: dict[str, tf.Tensor] | None = None,
) -> StateRows:
    """Compute the new global values from the sums over a cohort; every tensor is a global row [values].

    Args:
        state: The old values.
        total: Sum of the clients' contributions.
        coverage: Sum of the weights of those that cover an entry.
        memory_change: Sum of the changes of their memories, if the server reads it.
        clients: Results of each client, see `cohort.client_results`, if the recipe's merge reads them.

    Returns:
        The state with new weights and slots; its tables and pending sums do not change.
    """
    old, new = state.weights, masked_mean(state.weights, total, coverage)
    # Running statistics follow the trainable values; they are measured, not learned, so the server takes their mean.
    learned = setup.layout.learned
    if clients is not None:
        merged = _aggregate(setup.algorithm.aggregate, old[:learned], coverage[:learned], clients)
        new = tf.concat([merged, new[learned:]], 0)
    # The server's step sees trainable entries only.
    change = {} if memory_change is None else {"memory_change": memory_change[:learned]}
    slots = tuple(slot[:learned] for slot in state.slots)
    weights, slots = setup.algorithm.server(old[:learned], new[:learned], coverage[:learned], slots, **change)
    new_slots = tuple(tf.concat([slot, before[learned:]], 0) for slot, before in zip(slots, state.slots))
    return state._replace(weights=tf.concat([weights, new[learned:]], 0), slots=new_slots)


def _aggregate(aggregate, old, coverage, clients):
    """Return the learned values [values] that the recipe's merge computes; an uncovered entry keeps `old` exactly."""
    covered = clients["covered"][:, : old.shape[0]]
    rows = tf.where(covered, clients["rows"][:, : old.shape[0]], old)
    return tf.where(coverage > 0, aggregate(old, **clients | {"rows": rows, "covered": covered}), old)


def is_finite(state: StateRows, delays: tf.Tensor | None = None) -> tf.Tensor:
    """Return whether no weight, slot and pending sum that a round with these `delays` changes is NaN or infinite."""
    rows = [state.weights, *state.slots]
    if delays is not None:
        rows += [tf.gather(part, delays[1:] - 1) for parts in state.pending.values() for part in parts]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(row)) for row in rows])


def masked_mean(old: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor) -> tf.Tensor:
    """Return the mean over the clients that cover an entry, `total / coverage`; an uncovered entry keeps `old` exactly.

    Args:
        old: Global values.
        total: Sum of weight * value over the clients that cover an entry, in the shape of `old`.
        coverage: Sum of their weights, likewise.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1, as in the authors' code.
    """
    return tf.where(coverage > 0, tf.math.divide_no_nan(total, coverage), old)


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
    adapters, cut = layout.adapters, submodel.factors
    assert adapters is not None and cut is not None  # of a rule with products
    if not cut.columns:
        return tf.zeros([sum(map(math.prod, adapters.cut.shapes))], rows.dtype)
    # Global factors of each client, zeros at ranks and coordinates that it lacks: [K, values of the factors].
    factors = _split_factors(layout, cut.scatter(rows, coordinates, completed_stages))
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
