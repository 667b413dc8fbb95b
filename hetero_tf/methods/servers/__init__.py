"""Servers: update the global weights from the merged ones, entry by entry.

`apply(old, mean, coverage, slots, *, registered, options) -> (new, slots)`. `old` and `mean` are all trainable global
values, concatenated: before the round, and merged (`mean` is `old` for uncovered entries). `coverage`, of the same
shape, is the sum of the weights of the clients that cover an entry. `slots` are tensors of that shape that the server
keeps between rounds, one per name in the module's `SLOTS`, zeros before the first round. `registered`, a Python int,
is the number of registered clients. A server with a keyword `memory_change` also receives, per entry, the sum of this
round's changes of the correction memories of the covering clients.

For uncovered entries `old` and the slots must be returned bit-equal. A moving average would otherwise change entries
that no client trained.
"""

from collections.abc import Callable

import tensorflow as tf


def where_covered(
    coverage: tf.Tensor, new: tuple[tf.Tensor, ...], old: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Select `new` for entries that a client covers, and `old` bit by bit for the others.

    Args:
        coverage: Broadcastable to the tensors; an entry is covered if it is above 0.
        new, old: Tensors of one shape, the same number in both.

    Returns:
        The first tensor (the weights) and a tuple of the others (the slots).
    """
    covered = tf.broadcast_to(coverage > 0, tf.shape(old[0]))
    weights, *slots = (tf.where(covered, after, before) for after, before in zip(new, old, strict=True))
    return weights, tuple(slots)


MOMENTS = ("first_moment", "second_moment")


def adaptive_step(
    old: tf.Tensor,
    mean: tf.Tensor,
    coverage: tf.Tensor,
    slots: tuple[tf.Tensor, ...],
    accumulate: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    learning_rate: float,
    beta1: float,
    adaptivity: float,
) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """`m = beta1 * m + (1 - beta1) * d`, `v = accumulate(v, d^2)`, then `old + learning_rate * m / (sqrt(v) + tau)`.

    d is `mean - old`, tau the adaptivity. As in the paper the bias is not corrected. m and v start at 0. The paper
    starts v at tau^2 or above, so the first steps here are longer if changes are small compared with tau.

    Args:
        accumulate: `(v, d^2) -> v`.
    """
    change = mean - old
    first = beta1 * slots[0] + (1 - beta1) * change
    second = accumulate(slots[1], tf.square(change))
    weights = old + learning_rate * first / (tf.sqrt(second) + adaptivity)
    return where_covered(coverage, (weights, first, second), (old, *slots))
