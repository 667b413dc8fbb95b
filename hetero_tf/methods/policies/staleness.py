"""Factors of stale results, which the asynchronous policies share."""

from typing import Literal

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
