"""The merge of a round: masked means of the clients' results, and the server's step on them."""

import math
from collections.abc import Sequence

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.gather import positions_in
from hetero_tf.rounds.global_row import concat_values, flatten_coverage, pack_state, unpack_state
from hetero_tf.rounds.round_setup import RoundSetup


def axis_masks(cut: Cut, coordinates: dict[Axis, tf.Tensor], dtype: tf.DType) -> dict[Axis, tf.Tensor]:
    """Return `{Axis: [size + extra]}`, 1 where a client covers the coordinate and 0 elsewhere."""

    def mask(axis):
        # Coordinates without a position in the index get its length.
        index, size = coordinates[axis], axis.size + axis.extra
        return tf.cast(positions_in(index, size) < tf.shape(index)[0], dtype)

    return {axis: mask(axis) for axis in cut.distinct}


def coverage(
    cut: Cut, masks: dict[Axis, tf.Tensor], client_weights: list[tf.Tensor], zeros: bool = False
) -> list[tf.Tensor]:
    """Return the sum of client weights that cover each entry, for each variable, broadcastable to its global shape.

    An entry is covered if all its axes are covered. So the sum over clients is a contraction of small masks instead of
    a sum of full-size ones.

    Args:
        masks: `{Axis: [clients, size + extra]}`, stacked `axis_masks`.
        client_weights: For each variable [clients], 0 for clients that do not count for it.
        zeros: Whether a client also counts for channels or ranks that it lacks, with zeros in the sum.

    Reference for `zeros`: the padding that HetLoRA (Cho et al. 2024, arXiv 2401.06432) and others start from.
    """

    def contract_masks(axes, weights):
        names = [letter for letter, axis in zip("abcdefgh", axes) if axis is not None]
        operands = [masks[axis] for axis in axes if axis is not None]
        equation = ",".join(["z", *("z" + name for name in names)]) + "->" + "".join(names)
        # z: clients; one letter for every cut axis of the variable.
        summed = tf.einsum(equation, weights, *operands)
        return tf.reshape(summed, [1 if axis is None else axis.size + axis.extra for axis in axes])

    # Variables with the same cut share one contraction: the graph of a deep network is much smaller.
    cached: dict[tuple, tf.Tensor] = {}
    coverage_by_variable = []
    for every_axis, weights in zip(cut.axes, client_weights):
        # Uncut axes are covered by every client that counts; labels and networks are never padded.
        axes = tuple(axis if axis and (axis.label or axis.member or not zeros) else None for axis in every_axis)
        key = axes, id(weights)
        if key not in cached:
            cached[key] = contract_masks(axes, weights)
        coverage_by_variable.append(cached[key])
    return coverage_by_variable


def merge_updates(
    setup: RoundSetup, state: dict, total: tf.Tensor, coverage: tf.Tensor, memory_change: tf.Tensor | None = None
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Compute the new global values from the sums over a cohort; every tensor is a global row [values].

    Args:
        state: The old values, see `global_row.pack_state`.
        total: Sum of the clients' contributions.
        coverage: Sum of the weights of those that cover an entry.
        memory_change: Sum of the changes of their memories, if the server reads it.

    Returns:
        (weights, slots) as in `state`.
    """
    old, new = state["weights"], masked_mean(state["weights"], total, coverage)
    # Running statistics follow the trainable values; they are measured, not learned, so the server takes their mean.
    learned = sum(math.prod(shape) for shape in setup.layout.cut.shapes[: setup.layout.trainable])
    # The server's step sees trainable entries only.
    change = {} if memory_change is None else {"memory_change": memory_change[:learned]}
    slots = tuple(slot[:learned] for slot in state["slots"])
    weights, slots = setup.algorithm.server(old[:learned], new[:learned], coverage[:learned], slots, **change)
    new_slots = [tf.concat([slot, before[learned:]], 0) for slot, before in zip(slots, state["slots"])]
    return tf.concat([weights, new[learned:]], 0), new_slots


def merge_variables(setup: RoundSetup, state: dict, total: Sequence[tf.Tensor], coverage: Sequence[tf.Tensor]) -> dict:
    """Apply `merge_updates` to values in their global shapes.

    Args:
        state: The old values, see `round.new_state`.
        total: Sum of the clients' contributions to each value.
        coverage: Sum of their weights, broadcastable to each value.

    Returns:
        The new state.
    """
    shapes, rows = setup.layout.cut.shapes, pack_state(state)
    weights, slots = merge_updates(setup, rows, concat_values(total), flatten_coverage(coverage, shapes))
    return unpack_state({**rows, "weights": weights, "slots": slots}, shapes)


def all_finite(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether no entry of any tensor is NaN or infinite, a scalar bool."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])


def masked_mean(old: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor) -> tf.Tensor:
    """Return the mean over the clients that cover an entry, `total / coverage`; an uncovered entry keeps `old` exactly.

    Args:
        old: Global values.
        total: Sum of weight * value over the clients that cover an entry, in the shape of `old`.
        coverage: Sum of their weights, likewise.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1, as in the authors' code.
    """
    return tf.where(coverage > 0, tf.math.divide_no_nan(total, coverage), old)
