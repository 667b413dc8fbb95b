"""RoLoRA: clients train `b` in even rounds and `a` in odd ones, counted from 0."""

from hetero_tf.methods.adapters import AdapterMerge

CONFLICTS = {
    "a result may arrive in a round that trains the other factors": {"round.policy.ASYNCHRONOUS": True},
    "the memory of a client would change for factors that its round does not train": {
        "client.correction.REMEMBERS": True
    },
}


def merge() -> AdapterMerge:
    """Return the rule that trains the two factors in turn.

    In each round one factor is equal on all clients, so the mean of the other one is the mean of the products of each
    rank: the merge is exact. A client sends one factor; `bytes_up` counts the mean of both, `bytes_down` both factors.

    Reference: RoLoRA (Chen et al. 2024, arXiv 2409.02346).
    """
    return AdapterMerge(trained=(("b",), ("a",)))
