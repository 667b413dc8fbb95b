"""Budgets: shares of what the whole model takes of a client, and the units that fit under one, packed into stages.

A budget may exceed 1: such a client has room for more than one model.
"""

import math
from typing import NamedTuple

from hetero_tf.base.errors import InputError

# Sums of floats may miss a limit by their last digits.
SLACK = 1e-9


class Packing(NamedTuple):
    """How a client goes through the units, as positions among them.

    Attributes:
        skipped: Leading units that the client cannot hold: it trains the others only (partial training).
        stages: Units of each stage, in order; together with `skipped` every unit once.
    """

    skipped: tuple[int, ...]
    stages: tuple[tuple[int, ...], ...]


def cap(share: float, whole: float, tolerance: float) -> float:
    """The most that a client may hold: its share of `whole`, exceeded by the share `tolerance` at most."""
    return share * whole * (1 + tolerance)


def fits(cost: float, limit: float) -> bool:
    """Whether `cost` is at most `limit`, up to the rounding of a sum."""
    return cost <= limit * (1 + SLACK)


def pack(costs: list[float], limit: float, names: list[str]) -> Packing:
    """Packs units, in their order, into as few stages as a greedy pass finds.

    Leading units that exceed the limit alone are left out. Then a stage takes one unit after the other until the
    next would exceed the limit.

    Args:
        costs: What each unit takes, in any measure.
        limit: The most that the units of a stage may take together, see `cap`.
        names: Names of the units, for refusals.

    Returns:
        `Packing`.

    Raises:
        InputError: No unit fits, or one behind the first that fits does not.

    Reference: FeDepth; the stages of its code come out with tolerances from 0.0415 to 0.14.
    """
    _check(costs, limit, names)
    first = next((place for place, cost in enumerate(costs) if fits(cost, limit)), None)
    if first is None:
        cost, name = min(zip(costs, names))
        raise InputError(
            f"no unit is left to train: the smallest, {name}, takes {cost:,.6g} and the client can hold "
            f"{limit:,.6g}. Raise the budget or use smaller units"
        )
    stages: list[list[int]] = []
    held = math.inf
    for place in range(first, len(costs)):
        if not fits(costs[place], limit):
            raise InputError(
                f"unit {names[place]} takes {costs[place]:,.6g} and the client can hold {limit:,.6g}; only "
                f"units before the first that fits, {names[first]}, can be left out. Raise the budget or "
                "the tolerance, or use smaller units"
            )
        if fits(held + costs[place], limit):
            stages[-1].append(place)
            held += costs[place]
        else:
            stages.append([place])
            held = costs[place]
    return Packing(tuple(range(first)), tuple(map(tuple, stages)))


def _check(costs, limit, names):
    if len(costs) == 0 or not all(math.isfinite(cost) and cost >= 0 for cost in costs):
        raise InputError(f"`costs` must hold at least one number, each from 0. Received: costs={list(costs)}")
    if len(names) != len(costs):
        raise InputError(f"`names` must name each of {len(costs)} units. Received: names={list(names)}")
    if not 0 < limit < math.inf:
        raise InputError(f"`limit` must be positive and finite. Received: limit={limit}")
