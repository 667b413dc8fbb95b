"""The merge of a round: masked means of the clients' results, and the server's step on them."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.models.state import StateRows
from hetero_tf.rounds.round_setup import RoundSetup
from hetero_tf.rounds.submodel_cut import Coordinates, concat_columns, positions_in


def axis_mask(axis: Axis, coordinates: Coordinates, dtype: tf.DType) -> tf.Tensor:
    """Return [size + extra], 1 where a client covers the coordinate of an axis and 0 elsewhere."""
    # Coordinates without a position in the index get its length.
    index = coordinates[axis]
    return tf.cast(positions_in(index, axis.size + axis.extra) < tf.shape(index)[0], dtype)


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

    pieces = []
    # Adjacent variables with one coverage value for all entries are broadcast in one operation.
    for key, adjacent in itertools.groupby(
        range(len(kinds)), lambda position: (masked_axes(position), kinds[position])
    ):
        shapes, covering, (axes, _) = [cut.shapes[position] for position in adjacent], contract_masks(*key), key
        if not axes:
            shapes = [(sum(map(math.prod, shapes)),)]
        pieces += [tf.reshape(tf.broadcast_to(covering, shape), [-1]) for shape in shapes]
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


def is_finite(state: StateRows) -> tf.Tensor:
    """Return whether no weight, slot and pending sum is NaN or infinite, a scalar bool."""
    rows = (state.weights, *state.slots, *state.pending.values())
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
