"""FFA: the factors `a` are constants, and only `b` is trained, sent and merged."""

from hetero_tf.methods.adapters import AdapterMerge


def merge() -> AdapterMerge:
    """Return the rule that keeps `a` at its initial values, which all clients share.

    The mean of `b` over the clients that have a rank is then the mean of its products: the merge is exact. A client
    sends about half as much, and computes no gradients of `a`.

    Reference: FFA-LoRA (Sun et al. 2024, arXiv 2403.12313).
    """
    return AdapterMerge(trained=(("b",),), downloaded=("b",))
