"""Buffered (FedBuff): the server makes a step as soon as it has a number of results, however old they are."""

from typing import Annotated, Literal

from hetero_tf.base.constraints import Range, SmallCount
from hetero_tf.methods.policies import AsynchronousPolicy, Curve, staleness_factors

ASYNCHRONOUS = True
REQUIRES = {"fleet": True}


def policy(
    *,
    size: SmallCount = 10,
    staleness: Curve = "polynomial",
    exponent: Annotated[float, Range(low=0.0, high=10.0)] = 0.5,
    hinge_start: Annotated[int, Range(low=0, high=1_000)] = 4,
    hinge_slope: Annotated[float, Range(above=0.0, high=1e6)] = 10.0,
    neutral_staleness: Annotated[float, Range(low=0.0, high=1_000.0)] = 0.0,
    max_staleness: Annotated[int, Range(low=0, high=1_000)] = 20,
    divide_by: Literal["clients", "factors", "buffer"] = "clients",
    flush_after: SmallCount | None = None,
) -> AsynchronousPolicy:
    """Return the policy that adds the mean of `size` weighted changes to the global values.

    A change is the difference between a client's values and those that it started with. `round.server` makes the step,
    so its learning rate and momentum are those of FedBuff.

    Args:
        size: results that the server collects for a step
        staleness: factor of a result whose client started s versions ago: polynomial, (1 + s)^-exponent; constant, 1;
            hinge, 1 up to hinge_start, then 1 / (hinge_slope * (s - hinge_start) + 1)
        exponent: exponent of the polynomial
        hinge_start: largest staleness with factor 1
        hinge_slope: how fast the factor falls after hinge_start
        neutral_staleness: staleness whose factor is 1; all factors are divided by the one of this staleness
        max_staleness: results that are older are discarded; the state of the run has two numbers for each global value
            and version up to this one
        divide_by: what the sum of an entry's weighted changes is divided by: clients, those that cover it, so wide
            channels take steps of the same size; factors, the sum of their factors; buffer, the size of the buffer, as
            in FedBuff, which damps channels that few clients have
        flush_after: arrivals, discarded ones included, after which an incomplete buffer is used too, as FLSim does at
            the end of an epoch; null: never

    Reference: FedBuff (Nguyen et al. 2022, arXiv 2106.06639), algorithm 1. FLSim does not divide: with `divide_by:
    buffer`, its server learning rate is this one divided by `size`.
    """
    factors = staleness_factors(staleness, exponent, hinge_start, hinge_slope, neutral_staleness, max_staleness)
    return AsynchronousPolicy(buffer=size, factors=factors, adds="changes", divisor=divide_by, flush=flush_after)
