"""Mean: each rank of a factor is the mean over the clients that have it."""

from hetero_tf.methods.adapters import AdapterMerge


def merge() -> AdapterMerge:
    """Return the rule that merges factors entry by entry, like all other values.

    The product of two means is not the mean of the products, but the difference vanishes while clients agree. Ranks are
    not mixed, so high ranks persist.

    Reference: RBLA (arXiv 2408.08699).
    """
    return AdapterMerge()
