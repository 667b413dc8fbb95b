"""Momentum distillation: the last block of a shallow level also follows the changes of deeper blocks."""

import tensorflow as tf

from hetero_tf.base.constraints import Share
from hetero_tf.methods.merges import covered_mean, entry_weights

REQUIRES = {"round.by_level": "last"}


def aggregate(
    old: tf.Tensor, rows: tf.Tensor, covered: tf.Tensor, weight: tf.Tensor, *, submodel, blocks, beta: Share = 0.2
) -> tf.Tensor:
    """`old + (1 - beta) * d + beta * mean(d_deeper)` for the last block of each level but the deepest.

    d is the mean change of a value. `mean(d_deeper)` is that of the clients of the next deeper level, over its blocks
    from this one on. If none of them is active, and for all other values, the result is `old + d`.

    Args:
        beta: share of the deeper blocks; 0: the mean.

    Reference: InclusiveFL (Liu et al. 2022, arXiv 2205.04020), section 3.3, with changes instead of gradients.
    """
    weights, changes = entry_weights(covered, weight), rows - old
    merged = covered_mean(changes, weights)
    for columns, deeper, sources in blocks:
        # Weights of the clients of the deeper level, [K, blocks, n].
        is_deeper = tf.cast(tf.equal(submodel, deeper), weight.dtype)[:, None, None]
        of_deeper = is_deeper * tf.gather(weights, sources, axis=1)
        taught = tf.reduce_mean(covered_mean(tf.gather(changes, sources, axis=1), of_deeper), 0)
        change = tf.gather(merged, columns)
        distilled = tf.where(tf.reduce_any(of_deeper > 0), (1 - beta) * change + beta * taught, change)
        merged = tf.tensor_scatter_nd_update(merged, tf.constant(columns)[:, None], distilled)
    return old + merged
