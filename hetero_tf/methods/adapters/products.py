"""Products: the mean product of each range of ranks over the clients that have it, factorized by SVD."""

from hetero_tf.methods.adapters import AdapterMerge, combine_by_svd

PRODUCTS = True
REQUIRES = {"round.submodel": "prefix", "round.server": "replace"}


def merge() -> AdapterMerge:
    """Return the rule that averages products by ranges of ranks, between two distinct ranks of the mix.

    The sum of the mean products is factorized by its largest singular values, so the first ranks of a weak client are
    the most important directions. A direction is only averaged over clients that could train it, so high ranks persist.
    During a round memory grows by one kernel for each adapter, range of ranks and block of clients in flight.

    Reference: raFLoRA (2026, arXiv 2602.13486), by its description; its code was not public.
    """
    return AdapterMerge(products="ranks", combine=combine_by_svd)
