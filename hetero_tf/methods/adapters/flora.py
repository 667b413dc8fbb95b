"""FLoRA: the base absorbs the mean product after each round, and the adapters restart."""

import tensorflow as tf

from hetero_tf.methods.adapters import AdapterMerge, Factors

PRODUCTS = True
REQUIRES = {"round.submodel": "prefix", "round.server": "replace"}


def merge() -> AdapterMerge:
    """Return the rule that adds the mean product of the whole adapters of all clients to the base.

    The merge is exact for any ranks, and the rank of the sum over rounds has no limit. Every round starts from the
    initial adapters, `a` as drawn and `b` zero; the paper draws `a` again. Kernels change, so clients download them:
    `bytes_down` counts each base in full, and no adapter, since its initial values do not change. The paper's clients
    download the adapters of all clients instead, which is more if their ranks add up to more than the size of a kernel.
    During a round memory grows by one kernel for each adapter and block of clients in flight.

    Reference: FLoRA (Wang et al. 2024, arXiv 2409.05976).
    """
    return AdapterMerge(changed=("base",), products="adapters", combine=absorb)


def absorb(old: Factors, mean: Factors, product: tf.Tensor) -> tuple[Factors, tf.Tensor]:
    """Keep the old factors, and return the mean change of their product; see `AdapterMerge.combine`."""
    a, b = old
    return old, product - a @ b
