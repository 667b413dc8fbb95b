"""Immediate (FedAsync): the server mixes every result into the global model as soon as it arrives."""

from typing import Annotated

from hetero_tf.base.constraints import Range
from hetero_tf.methods.policies import AsynchronousPolicy, Curve, staleness_factors

ASYNCHRONOUS = True
REQUIRES = {"fleet": True}
CONFLICTS = {
    "immediate mixes untrained values of an earlier version into the global ones": {"round.untrained": "counted"}
}


def policy(
    *,
    staleness: Curve = "polynomial",
    exponent: Annotated[float, Range(low=0.0, high=10.0)] = 0.5,
    hinge_start: Annotated[int, Range(low=0, high=1_000)] = 4,
    hinge_slope: Annotated[float, Range(above=0.0, high=1e6)] = 10.0,
    neutral_staleness: Annotated[float, Range(low=0.0, high=1_000.0)] = 0.0,
    max_staleness: Annotated[int, Range(low=0, high=1_000)] = 20,
) -> AsynchronousPolicy:
    """Return the policy of `w = (1 - a) * w + a * w_k`, with `a` the factor of the result times the server's rate.

    Use it with `round.server: sgd`, whose learning rate is the mixing weight of a fresh result.

    Args:
        staleness: factor of a result whose client started s versions ago: polynomial, (1 + s)^-exponent; constant, 1;
            hinge, 1 up to hinge_start, then 1 / (hinge_slope * (s - hinge_start) + 1)
        exponent: exponent of the polynomial
        hinge_start: largest staleness with factor 1
        hinge_slope: how fast the factor falls after hinge_start
        neutral_staleness: staleness whose factor is 1; all factors are divided by the one of this staleness
        max_staleness: results that are older are discarded; the state of the run has two numbers for each global value
            and version up to this one

    Reference: FedAsync (Xie, Koyejo, Gupta 2019, arXiv 1903.03934), algorithm 1.
    """
    factors = staleness_factors(staleness, exponent, hinge_start, hinge_slope, neutral_staleness, max_staleness)
    return AsynchronousPolicy(buffer=1, factors=factors, adds="values", divisor="buffer")
