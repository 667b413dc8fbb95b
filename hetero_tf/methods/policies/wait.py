"""Wait: a round ends when the slowest client has returned."""

from hetero_tf.methods.policies import SynchronousPolicy


def policy() -> SynchronousPolicy:
    """Return the policy of rounds that merge all clients except those that drop out."""
    return SynchronousPolicy()
