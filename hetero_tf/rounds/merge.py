"""The merge of a round: masked means of what clients returned, and the server's step on them."""

import tensorflow as tf

from hetero_tf.rounds.parts import RoundParts


def merge_updates(
    parts: RoundParts,
    state: dict,
    total: list[tf.Tensor],
    coverage: list[tf.Tensor],
    memory_change: list[tf.Tensor] | None = None,
) -> tuple[list[tf.Tensor], list[list[tf.Tensor]]]:
    """Makes the new global values of the sums over a cohort.

    Args:
        state: The old values, see `round.new_state`.
        total: Sum of the clients' contributions, in global shapes.
        coverage: Sum of their weights, broadcastable to the global shapes.
        memory_change: Sum of what their memories have changed by, where the server takes it.

    Returns:
        (weights, slots) as in `round.new_state`.
    """
    weights: list[tf.Tensor] = []
    slots: list[list[tf.Tensor]] = [[] for _ in state["slots"]]
    for old, summed, covered, *kept in zip(state["weights"], total, coverage, *state["slots"]):
        new = masked_mean(old, summed, covered)
        # Running statistics behind the trainable values are measured, not learned: the server takes their mean.
        if len(weights) < parts.placement.trainable:
            change = {} if memory_change is None else {"memory_change": memory_change[len(weights)]}
            new, kept = parts.algorithm.server(old, new, covered, tuple(kept), **change)
        weights.append(new)
        for slot, value in zip(slots, kept):
            slot.append(value)
    return weights, slots


def masked_mean(old: tf.Tensor, total: tf.Tensor, coverage: tf.Tensor) -> tf.Tensor:
    """Mean over the clients that cover an entry: `total / coverage` where somebody does, else the old value exactly.

    Args:
        old: Values of one global variable.
        total: Sum of weight * value over the clients that cover an entry, in the shape of `old`.
        coverage: Sum of their weights, broadcastable to `old`.

    Reference: HeteroFL (arXiv 2010.01264), equations 2 to 6; every client counts 1 as in the authors' code.
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old))
    return tf.where(covered, tf.math.divide_no_nan(total, coverage), old)
