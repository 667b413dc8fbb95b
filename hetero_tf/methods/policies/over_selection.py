"""Over-selection: more clients start than the round needs, and the first to return are merged."""

from typing import Annotated

from hetero_tf.base.constraints import Range
from hetero_tf.methods.policies import SynchronousPolicy

REQUIRES = {"fleet": True}


def policy(*, factor: Annotated[float, Range(above=1.0, high=100.0)] = 1.3) -> SynchronousPolicy:
    """Return the policy of rounds that start `factor * round.clients` clients and merge the first `round.clients`.

    Args:
        factor: clients that start, as a multiple of round.clients, rounded up; the others have downloaded and worked
            in vain, and their download and energy count

    Reference: Bonawitz et al. 2019 (arXiv 1902.01046), section 4.2, which starts 130 % of the clients.
    """
    return SynchronousPolicy(factor=factor)
