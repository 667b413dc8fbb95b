"""The merge of a round: masked means of what clients returned, and the server's step on them."""

import math
from collections.abc import Sequence

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.gather import inverse
from hetero_tf.rounds.global_row import coverage_row, in_rows, joined, unpack_state
from hetero_tf.rounds.round_setup import RoundSetup


def axis_masks(cut: Cut, where: dict[Axis, tf.Tensor], dtype: tf.DType) -> dict[Axis, tf.Tensor]:
    """`{Axis: [size + extra]}`, 1 where a client covers the coordinate and 0 elsewhere."""

    def mask(axis):
        index, size = where[axis], axis.size + axis.extra
        return tf.cast(inverse(index, size) < tf.shape(index)[0], dtype)

    return {axis: mask(axis) for axis in cut.distinct}


def coverage(
    cut: Cut, masks: dict[Axis, tf.Tensor], client_weights: list[tf.Tensor], zeros: bool = False
) -> list[tf.Tensor]:
    """The sum of client weights that cover each entry, for each variable, broadcastable to its global shape.

    An entry is covered where all its axes are, so the sum over clients is a contraction of small masks instead of
    a sum of full-size ones.

    Args:
        masks: `{Axis: [clients, size + extra]}`, stacked `axis_masks`.
        client_weights: For each variable [clients], 0 for clients that do not count for it.
        zeros: Whether a client counts for the channels or ranks that it lacks too, in which its sum is zero.

    Reference for `zeros`: the padding that HetLoRA (Cho et al. 2024, arXiv 2401.06432) and others start from.
    """

    def covered(axes, weights):
        names = [letter for letter, axis in zip("abcdefgh", axes) if axis is not None]
        operands = [masks[axis] for axis in axes if axis is not None]
        equation = ",".join(["z", *("z" + name for name in names)]) + "->" + "".join(names)
        summed = tf.einsum(equation, weights, *operands)
        return tf.reshape(summed, [1 if axis is None else axis.size + axis.extra for axis in axes])

    # Variables that are cut alike share what they are covered by: the graph of a deep network is much smaller.
    shared: dict[tuple, tf.Tensor] = {}
    found = []
    for every_axis, weights in zip(cut.axes, client_weights):
        # What is broadcast is covered by every client that counts; labels and networks are never padded.
        axes = tuple(axis if axis and (axis.label or axis.member or not zeros) else None for axis in every_axis)
        key = axes, id(weights)
        if key not in shared:
            shared[key] = covered(axes, weights)
        found.append(shared[key])
    return found


def merge_updates(
    parts: RoundSetup, state: dict, total: tf.Tensor, coverage: tf.Tensor, memory_change: tf.Tensor | None = None
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Makes the new global values of the sums over a cohort; every tensor is a global row [values].

    Args:
        state: The old values, see `global_row.in_rows`.
        total: Sum of the clients' contributions.
        coverage: Sum of the weights of those that cover an entry.
        memory_change: Sum of what their memories have changed by, where the server takes it.

    Returns:
        (weights, slots) as in `state`.
    """
    old, new = state["weights"], masked_mean(state["weights"], total, coverage)
    # Running statistics behind the trainable values are measured, not learned: the server takes their mean.
    learned = sum(math.prod(shape) for shape in parts.placement.cut.shapes[: parts.placement.trainable])
    change = {} if memory_change is None else {"memory_change": memory_change[:learned]}
    slots = tuple(slot[:learned] for slot in state["slots"])
    weights, slots = parts.algorithm.server(old[:learned], new[:learned], coverage[:learned], slots, **change)
    kept = [tf.concat([slot, before[learned:]], 0) for slot, before in zip(slots, state["slots"])]
    return tf.concat([weights, new[learned:]], 0), kept


def merge_variables(parts: RoundSetup, state: dict, total: Sequence[tf.Tensor], coverage: Sequence[tf.Tensor]) -> dict:
    """`merge_updates` of values in their global shapes.

    Args:
        state: The old values, see `round.new_state`.
        total: Sum of the clients' contributions to each value.
        coverage: Sum of their weights, broadcastable to each value.

    Returns:
        The new state.
    """
    shapes, rows = parts.placement.cut.shapes, in_rows(state)
    weights, slots = merge_updates(parts, rows, joined(total), coverage_row(coverage, shapes))
    return unpack_state({**rows, "weights": weights, "slots": slots}, shapes)


def all_finite(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return whether no entry of any tensor is NaN or infinite, a scalar bool."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(value)) for value in values])


def masked_mean(old: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor) -> tf.Tensor:
    """Mean over the clients that cover an entry: `total / coverage` where somebody does, else the old value exactly.

    Args:
        old: Global values.
        total: Sum of weight * value over the clients that cover an entry, in the shape of `old`.
        coverage: Sum of their weights, likewise.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1 as in the authors' code.
    """
    return tf.where(coverage > 0, tf.math.divide_no_nan(total, coverage), old)
