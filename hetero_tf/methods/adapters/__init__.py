"""Adapters: how the low-rank factors of clients of unequal rank are trained and merged.

An adapter adds `scale * a b` to a constant kernel, its base. `a` is [channels, rank] and `b` [rank, outputs]; a client
of rank r has the first r columns of `a` and rows of `b`. `models.adapter_pairs` finds the adapters of a model.

`merge(*, options) -> AdapterMerge`: the rule of one run, a plain value. A module whose rule reads products has the
constant `PRODUCTS = True`.

If the new factors and the change of the base represent the mean product exactly, so that `scale * a b` plus the change
is `scale` times the mean product, the merge is exact; factors can do so if their rank is at least that of the product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import tensorflow as tf

# A factor `a` [channels, rank] and a factor `b` [rank, outputs].
Factors = tuple[tf.Tensor, tf.Tensor]


@dataclass(frozen=True, kw_only=True)
class AdapterMerge:
    """Rule of the adapters of a run.

    Attributes:
        trained: The factors that clients train, one tuple for each round in turn. Other factors keep their values in
            that round, and are not sent. A factor in none of the tuples is a constant of the model.
        downloaded: The parts of an adapter that clients download in each round: "a", "b" and "base".
        products: The products `a b` whose means the server computes: "ranks", a product for each range between two
            distinct ranks of the mix, over the clients that have it; "adapters", one of the whole adapter over all
            clients, in which missing ranks are zeros; None, no products.
        combine: `(old, mean, product, key) -> (factors, change)`, called with products. `old` and `mean` are the
            `Factors` before the round and the means of their entries, `product` [channels, outputs] is the mean
            product; a product without a client is that of the old factors. `key`, int32 [3], is (seed, round, adapter),
            for `base.graph_random`. `scale * change` is added to the base; None adds nothing.
    """

    trained: tuple[tuple[Literal["a", "b"], ...], ...] = (("a", "b"),)
    downloaded: tuple[Literal["a", "b", "base"], ...] = ("a", "b")
    products: Literal["ranks", "adapters"] | None = None
    combine: Callable[..., tuple[Factors, tf.Tensor | None]] | None = None


def factorize(product: tf.Tensor, rank: int) -> Factors:
    """Return the factors of a product [channels, outputs] by its largest singular values, in descending order.

    The columns of `a` are orthonormal and `b` has the singular values, so every rank of a product of lower rank still
    has a gradient. A client of rank r then has the best approximation of rank r. Signs, and vectors of equal singular
    values, are arbitrary: compare products, not factors.

    Args:
        rank: Columns of `a` and rows of `b`; those beyond the size of the product are zeros.
    """
    singular, left, right = tf.linalg.svd(product)
    count = min(rank, singular.shape[0])
    a, b = left[:, :count], singular[:count, None] * tf.transpose(right[:, :count])
    return tf.pad(a, [[0, 0], [0, rank - count]]), tf.pad(b, [[0, rank - count], [0, 0]])


def combine_by_svd(old: Factors, mean: Factors, product: tf.Tensor, key: tf.Tensor) -> tuple[Factors, None]:
    """Return the factors of the mean product; see `AdapterMerge.combine`."""
    return factorize(product, old[0].shape[1]), None
