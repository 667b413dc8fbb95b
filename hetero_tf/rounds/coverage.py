"""Which entries of the global values clients cover, and how much the clients that do weigh together."""

import tensorflow as tf

from hetero_tf.rounds.cut import Axis, Cut, inverse


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
