"""Round policies: the clients whose results a round waits for, on the clock of the fleet.

`policy(*, options) -> SynchronousPolicy | AsynchronousPolicy`: the rule of one run, a plain value that does not depend
on the round. A module whose policy is asynchronous has the constant `ASYNCHRONOUS = True`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin

# Options of the asynchronous policies, which others do not have.
UNUSED = {
    "the factor is not a polynomial": {"round.policy.staleness": ["constant", "hinge"], "round.policy.exponent": True},
    "the factor has no hinge": {"round.policy.staleness": ["polynomial", "constant"], "round.policy.hinge_start": True},
    "the factor is not a hinge": {
        "round.policy.staleness": ["polynomial", "constant"],
        "round.policy.hinge_slope": True,
    },
    "all factors are 1": {"round.policy.staleness": "constant", "round.policy.neutral_staleness": True},
}


@dataclass(frozen=True, kw_only=True)
class SynchronousPolicy:
    """Rule of rounds in which all clients start at one version of the global model and are merged together.

    Attributes:
        deadline: Seconds after which a round stops waiting for clients. If None, it waits for all of them.
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


@dataclass(frozen=True, kw_only=True)
class AsynchronousPolicy:
    """Rule of rounds in which clients start whenever another one has returned: `round.clients` run at any time.

    A round of the run is one version of the global model: it ends as soon as the server has collected `buffer` results,
    of which some come from clients that started in earlier rounds.

    Attributes:
        buffer: Results after which the server makes a step.
        factors: Factor of a result by its staleness, the number of versions that ended while its client ran; older
            results are discarded.
        adds: "changes", the difference of a client's values from those that it started with; "values", the difference
            from the current global values.
        divisor: What the sum of weighted differences of an entry is divided by: "clients", the number of those in the
            buffer that cover it; "factors", the sum of their factors; "buffer", the size of the buffer.
        flush: Arrivals, discarded ones included, after which a step also takes an incomplete buffer, or None for never.
    """

    buffer: int
    factors: tuple[float, ...]
    adds: Literal["changes", "values"]
    divisor: Literal["clients", "factors", "buffer"]
    flush: int | None = None

    @property
    def max_staleness(self) -> int:
        """The largest staleness of a result that is merged."""
        return len(self.factors) - 1

    def cohort_size(self, clients: int) -> int:
        """Return the number of clients that run at any time."""
        return clients


def round_policy(plugin: Plugin) -> SynchronousPolicy | AsynchronousPolicy:
    """Return the policy that `round.policy` names."""
    return registry.find("policies", plugin.name).policy(**plugin.options)


Curve = Literal["polynomial", "constant", "hinge"]


def staleness_factors(
    curve: Curve, exponent: float, start: int, slope: float, neutral: float, limit: int
) -> tuple[float, ...]:
    """Return the factors of results with a staleness of 0 to `limit`.

    Args:
        curve: polynomial, `(1 + s)^-exponent`; constant, 1; hinge, 1 up to `start`, then
            `1 / (slope * (s - start) + 1)`.
        exponent, start, slope: Parameters of the curves.
        neutral: Staleness whose factor is 1; the factors of all others are relative to it.
        limit: The largest staleness.

    Reference: FedAsync (Xie, Koyejo, Gupta 2019, arXiv 1903.03934), section 5.2; FLSim divides by the factor of an
    average staleness.
    """

    def factor(staleness):
        if curve == "polynomial":
            return (1 + staleness) ** -exponent
        return 1.0 if curve == "constant" or staleness <= start else 1 / (slope * (staleness - start) + 1)

    return tuple(factor(staleness) / factor(neutral) for staleness in range(limit + 1))
