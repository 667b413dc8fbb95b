"""FLoRA: the base absorbs the mean product after each round, and the adapters restart."""

import tensorflow as tf

from hetero_tf.base.graph_random import uniform
from hetero_tf.methods.adapters import AdapterMerge, Factors

PRODUCTS = True
REQUIRES = {"round.submodel": "prefix", "round.server": "replace"}


def merge() -> AdapterMerge:
    """Return the rule that adds the mean product of the whole adapters of all clients to the base.

    The merge is exact for any ranks, and the rank of the sum over rounds has no limit. Every round starts from new
    adapters: `b` is zero, and `a` has its initial entries in an order that the seed and the round draw. With the same
    `a` in all rounds, updates would stay in one subspace. Kernels change, so clients download them: `bytes_down` counts
    each base in full and no adapter, since clients can draw them. The paper's clients download the adapters of all
    clients instead, which is more if these have more values than a kernel.
    During a round memory grows by one kernel for each adapter and block of clients in flight.

    Reference: FLoRA (Wang et al. 2024, arXiv 2409.05976).
    """
    return AdapterMerge(downloaded=("base",), products="adapters", combine=absorb)


def absorb(old: Factors, mean: Factors, product: tf.Tensor, key: tf.Tensor) -> tuple[Factors, tf.Tensor]:
    """Return new adapters, and the mean product as the change of the base; see `AdapterMerge.combine`."""
    a, b = old
    entries = tf.reshape(a, [-1])
    order = tf.argsort(uniform(key, [entries.shape[0]]), stable=True)
    return (tf.reshape(tf.gather(entries, order), a.shape), tf.zeros_like(b)), product
