"""Round policies: the clients whose results a round waits for, on the clock of the fleet.

`policy(*, options) -> SynchronousPolicy`: the rule of one run, a plain value that does not depend on the round.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SynchronousPolicy:
    """Rule of rounds in which all clients start at one version of the global model and are merged together.

    Attributes:
        deadline: Seconds after which a round stops waiting for clients; None: it waits for all of them.
        partial: Late clients return their completed steps; False: they return nothing.
        factor: Clients that start, as a multiple of `round.clients`; the round ends when that many have returned.
    """

    deadline: float | None = None
    partial: bool = False
    factor: float = 1.0

    def cohort_size(self, clients: int) -> int:
        """Return the number of clients that start, for the `round.clients` of which the round merges at most."""
        # In floats 1.1 * 10 is slightly above 11.
        return math.ceil(self.factor * clients * (1 - 1e-9))
