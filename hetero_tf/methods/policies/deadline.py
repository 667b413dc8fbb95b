"""Deadline: a round ends after a fixed time; late clients return nothing or their completed steps."""

from typing import Literal

from hetero_tf.base.constraints import Positive
from hetero_tf.methods.policies import SynchronousPolicy

REQUIRES = {"fleet": True}


def policy(*, seconds: Positive, late: Literal["drop", "partial"] = "drop") -> SynchronousPolicy:
    """Return the policy of rounds that wait for the slowest client, but at most until the deadline.

    Args:
        seconds: device time after which a round stops waiting for clients
        late: result of a client that misses the deadline: drop, nothing; partial, the steps that it completes early
            enough to upload them, or its completed stages if several stages run in sequence
    """
    return SynchronousPolicy(deadline=seconds, partial=late == "partial")
