"""Budgets as exact shares, the published scenarios, and what sub-model of a kind a budget holds."""

import math
from fractions import Fraction
from typing import NamedTuple

from hetero_tf.errors import BadInput, did_you_mean

# Quotients and sums of floats may miss a whole number or a limit by their last digits.
QUOTIENT_SLACK = 1e-6
SUM_SLACK = 1e-9


class Scenario(NamedTuple):
    """Budgets of equal parts of the clients, smallest first.

    Under `lack` the smallest budget does not hold the first blocks; under `surplus` the largest holds two models.

    Source: FeDepth.
    """

    name: str
    shares: tuple[Fraction, ...]


FAIR = Scenario("fair", (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2), Fraction(1)))
LACK = Scenario("lack", (Fraction(1, 8), Fraction(1, 6), Fraction(1, 2), Fraction(1)))
SURPLUS = Scenario("surplus", (Fraction(1, 6), Fraction(1, 3), Fraction(1, 2), Fraction(2)))
SCENARIOS = {scenario.name: scenario for scenario in (FAIR, LACK, SURPLUS)}


class Need(NamedTuple):
    """What a unit or a sub-model takes of a client.

    Attributes:
        memory: Bytes of training memory, see `accounting.memory`.
        flops: Multiply-adds of one forward pass of one example.
        share: Plain share of the full model, such as its width.
    """

    memory: float
    flops: float
    share: float

    def by(self, measure):
        """The one that a measure, one of `MEASURES`, compares."""
        if measure not in MEASURES:
            raise BadInput(f"unknown measure of a budget: {measure!r}{did_you_mean(measure, MEASURES)}")
        return getattr(self, measure)


MEASURES = Need._fields


def scenario(name):
    """The `Scenario` of that name."""
    if name not in SCENARIOS:
        raise BadInput(f"unknown scenario of budgets: {name!r}{did_you_mean(name, SCENARIOS)}")
    return SCENARIOS[name]


def exact_share(value):
    """A budget as a positive `Fraction`: from a number as it is written (0.165 is 33/200) or a text such as "1/6"."""
    try:
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if share <= 0:
        raise BadInput(f"a budget must be a positive number or a fraction such as 1/6. Received: {value!r}")
    return share


def cap(share, whole, tolerance):
    """The most that a client may hold: its share of `whole`, exceeded by the share `tolerance` at most."""
    if not 0 <= tolerance < 1:
        raise BadInput(f"`tolerance` must be at least 0 and below 1. Received: tolerance={tolerance}")
    return float(share * Fraction(whole)) * (1 + tolerance)


def fits(cost, cap):
    """Whether `cost` is at most `cap`, up to the rounding of a sum."""
    return cost <= cap * (1 + SUM_SLACK)


def greatest(needs, full, share, measure, tolerance, what):
    """The greatest sub-model that a client can hold: its widest width, or its depth as a number of exits.

    Args:
        needs: `{width or depth: Need}` of the sub-models to choose from.
        full: `Need` of the full model.
        share: The client's budget.
        measure: What the share is a share of, one of `MEASURES`.
        tolerance: Share by which the sub-model may exceed the budget.
        what: "width" or "depth", for the refusal.

    Raises:
        BadInput: Not even the smallest fits.
    """
    most = cap(share, full.by(measure), tolerance)
    held = [size for size, need in needs.items() if fits(need.by(measure), most)]
    if not held:
        least = min(needs)
        raise BadInput(f"no {what} fits the budget {share}: the smallest, {least}, takes "
                       f"{needs[least].by(measure):,.6g} ({measure}) and the client can hold {most:,.6g}")
    return max(held)


def members(share, atom):
    """How many networks of size `atom` a budget holds: floor(share / atom). With `atom` 1: how many whole models.

    Raises:
        BadInput: Not one.
    """
    count = math.floor(float(Fraction(share) / Fraction(atom)) + QUOTIENT_SLACK)
    if count < 1:
        raise BadInput(f"the budget {share} holds no member: one takes {atom}")
    return count
