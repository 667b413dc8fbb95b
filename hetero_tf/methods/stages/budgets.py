"""Budgets: limits of a client as shares of the cost of the full model, and units packed into stages that fit.

A budget may exceed 1: more than one model fits on such a client.
"""

import math
from typing import NamedTuple

from hetero_tf.base.errors import InputError

# Tolerates rounding errors of floating-point sums.
SLACK = 1e-9


class Packing(NamedTuple):
    """Units packed into stages, by index.

    Attributes:
        skipped: Leading units that exceed the budget; the client trains only the others (partial training).
        stages: Units of each stage, in order; with `skipped` they contain every unit once.
    """

    skipped: tuple[int, ...]
    stages: tuple[tuple[int, ...], ...]


def cap(share: float, whole: float, tolerance: float) -> float:
    """Return the limit of a client: its share of the full cost `whole`, plus the share `tolerance`."""
    return share * whole * (1 + tolerance)


def fits(cost: float, limit: float) -> bool:
    """Return True if `cost` is at most `limit`, up to rounding errors."""
    return cost <= limit * (1 + SLACK)


def pack(costs: list[float], limit: float, names: list[str]) -> Packing:
    """Pack units greedily, in order, into stages that fit the limit.

    Leading units that exceed the limit are skipped. A stage then receives units until the next one would exceed the
    limit.

    Args:
        costs: Cost of each unit, in any measure.
        limit: Largest total cost of the units of a stage, see `cap`.
        names: Names of the units, for error messages.

    Returns:
        `Packing`.

    Raises:
        InputError: No unit fits, or a unit after the first one that fits does not.

    Reference: FeDepth; tolerances from 0.0415 to 0.14 reproduce the stages of its code.
    """
    first = next((index for index, cost in enumerate(costs) if fits(cost, limit)), None)
    if first is None:
        cost, name = min(zip(costs, names))
        raise InputError(
            f"no unit fits the budget: the smallest, {name}, needs {cost:,.6g}, but the limit is {limit:,.6g}. "
            "Raise the budget or use smaller units"
        )
    stages: list[list[int]] = []
    stage_cost = math.inf
    for index in range(first, len(costs)):
        if not fits(costs[index], limit):
            raise InputError(
                f"unit {names[index]} needs {costs[index]:,.6g}, but the limit is {limit:,.6g}; only units before "
                f"the first that fits, {names[first]}, can be skipped. Raise the budget or the tolerance, or use "
                "smaller units"
            )
        if fits(stage_cost + costs[index], limit):
            stages[-1].append(index)
            stage_cost += costs[index]
        else:
            stages.append([index])
            stage_cost = costs[index]
    return Packing(tuple(range(first)), tuple(map(tuple, stages)))
