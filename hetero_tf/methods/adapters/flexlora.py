"""FlexLoRA, for comparison: the mean product over all clients, factorized by SVD. High ranks collapse."""

from hetero_tf.methods.adapters import AdapterMerge, combine_by_svd

PRODUCTS = True
REQUIRES = {"round.submodel": "prefix", "round.server": "replace"}


def merge() -> AdapterMerge:
    """Return the rule that averages the products of whole adapters.

    A weak client has no directions beyond its rank, but counts in their mean. Each round multiplies them by the share
    of the clients that have them: with unequal ranks they decay geometrically (rank collapse, arXiv 2602.13486). Use
    `products` instead. During a round memory grows by one kernel for each adapter and block of clients in flight.

    Reference: FlexLoRA (Bai et al. 2024, arXiv 2402.11505).
    """
    return AdapterMerge(products="adapters", combine=combine_by_svd)
