"""Geometric median (RFA): the weights with the smallest sum of distances to those of the clients."""

from typing import Annotated

import tensorflow as tf

from hetero_tf.base.constraints import Positive, Range
from hetero_tf.methods.merges import covered_mean, entry_weights, root_mean_square


def aggregate(
    old: tf.Tensor,
    rows: tf.Tensor,
    covered: tf.Tensor,
    weight: tf.Tensor,
    *,
    iterations: Annotated[int, Range(low=1, high=100)] = 4,
    smoothing: Positive = 1e-6,
) -> tf.Tensor:
    """Return an approximate minimum v of `sum(weight * sqrt(entries) * |v - row|)` by Weiszfeld's algorithm.

    The distance `|v - row|` is over the entries that the client covers, and `entries` is their number. Each iteration
    weights a client by `weight / max(smoothing, d)`, where d is the root of the mean square of `v - row`: clients that
    are equally far from v per entry count alike at all levels. With equal levels it is the geometric median. The first
    v is the old value.

    Args:
        iterations: iterations of Weiszfeld's algorithm.
        smoothing: smallest distance d.

    Reference: RFA (Pillutla, Kakade, Harchaoui 2022, arXiv 1912.13445), algorithm 2.
    """
    center = old
    for _ in range(iterations):
        distance = root_mean_square(rows - center, covered)
        weights = entry_weights(covered, weight / tf.maximum(distance[:, 0], smoothing))
        center = old + covered_mean(rows - old, weights)
    return center
