"""The units of a model packed into stages under a budget, and what training them stage by stage costs."""

import math
from typing import NamedTuple

from hetero_tf.budgets.shares import cap, fits
from hetero_tf.errors import BadInput


class Packing(NamedTuple):
    """How a client goes through the units, as positions among them.

    Attributes:
        skipped: Leading units that the client cannot hold: it trains the others only (partial training).
        stages: Units of each stage, in order; together with `skipped` every unit once.
    """

    skipped: tuple[int, ...]
    stages: tuple[tuple[int, ...], ...]


class Stage(NamedTuple):
    """Positions of the units that run in a stage: those that only hand values on, and those that it trains."""

    frozen: tuple[int, ...]
    trained: tuple[int, ...]


def pack(costs, limit, names):
    """Packs units, in their order, into as few stages as a greedy pass finds.

    Leading units that exceed the limit alone are left out. Then a stage takes one unit after the other until the
    next would exceed the limit.

    Args:
        costs: What each unit takes, in any measure.
        limit: The most that the units of a stage may take together, see `shares.cap`.
        names: Names of the units, for refusals.

    Returns:
        `Packing`.

    Raises:
        BadInput: No unit fits, or one behind the first that fits does not.

    Reference: FeDepth; the stages of its code come out with tolerances from 0.0415 to 0.14.
    """
    _check(costs, limit, names)
    first = next((place for place, cost in enumerate(costs) if fits(cost, limit)), None)
    if first is None:
        cost, name = min(zip(costs, names))
        raise BadInput(f"no unit is left to train: the smallest, {name}, takes {cost:,.6g} and the client can hold "
                       f"{limit:,.6g}. Raise the budget or use smaller units")
    stages, held = [], math.inf
    for place in range(first, len(costs)):
        if not fits(costs[place], limit):
            raise BadInput(f"unit {names[place]} takes {costs[place]:,.6g} and the client can hold {limit:,.6g}; only "
                           f"units before the first that fits, {names[first]}, can be left out. Raise the budget or "
                           "the tolerance, or use smaller units")
        if fits(held + costs[place], limit):
            stages[-1].append(place)
            held += costs[place]
        else:
            stages.append([place])
            held = costs[place]
    return Packing(tuple(range(first)), tuple(map(tuple, stages)))


def _check(costs, limit, names):
    if len(costs) == 0 or not all(math.isfinite(cost) and cost >= 0 for cost in costs):
        raise BadInput(f"`costs` must hold at least one number, each from 0. Received: costs={list(costs)}")
    if len(names) != len(costs):
        raise BadInput(f"`names` must name each of {len(costs)} units. Received: names={list(names)}")
    if not 0 < limit < math.inf:
        raise BadInput(f"`limit` must be positive and finite. Received: limit={limit}")


def pack_levels(costs, names, whole, budgets, tolerance):
    """The `Packing` of every level.

    Args:
        costs, names: See `pack`.
        whole: What the full model takes in the same measure, with the ends that are not packed.
        budgets: `{level: share of whole}` of the levels that have clients.
        tolerance: Share by which a stage may exceed the budget.

    Raises:
        BadInput: As `pack`, with the level; or every level leaves a unit out, so that nobody would train it.
    """
    packings = {}
    for level, share in budgets.items():
        try:
            packings[level] = pack(costs, cap(share, whole, tolerance), names)
        except BadInput as problem:
            raise BadInput(f"level {level}, budget {share}: {problem}") from None
    nobody = min((packing.skipped for packing in packings.values()), key=len, default=())
    if nobody:
        raise BadInput(f"unit {names[nobody[0]]} takes {costs[nobody[0]]:,.6g}, and no client can hold it: the largest "
                       f"budget is {max(budgets.values())} of {whole:,.6g}. Nobody would train it; raise a budget or "
                       "the tolerance, or use smaller units")
    return packings


def with_ends(packing, before, after):
    """The `Stage`s of a packing as positions in the whole model.

    Args:
        packing: `Packing` of the units between the ends.
        before: How many units stand before them (the stem): they are trained in the first stage only.
        after: How many stand behind them (the head): every stage trains them, reached by a link from its last unit.
    """
    units = len(packing.skipped) + sum(map(len, packing.stages))
    moved = [tuple(before + place for place in stage) for stage in packing.stages]
    head = tuple(range(before + units, before + units + after))
    stages, earlier = [], ()
    for own in ((*range(before), *moved[0]), *moved[1:]):
        stages.append(Stage(earlier, (*own, *head)))
        earlier = (*earlier, *own)
    return tuple(stages)


def stage_work(flops, stages, epochs, buffered):
    """What the forward pass of one example costs in each stage.

    Args:
        flops: Multiply-adds of one forward pass of each unit.
        stages: `Stage`s.
        epochs: Passes over the examples in every stage.
        buffered: Whether what finished stages hand on is kept, so that a frozen unit runs once for an example and not
            in every later step.

    Returns:
        For each stage [(multiply-adds of the trained units, of the frozen ones, mean over the epochs)].
    """
    found, before = [], set()
    for stage in stages:
        running = set(stage.frozen) - before if buffered else stage.frozen
        frozen = sum(flops[place] for place in running) / (epochs if buffered else 1)
        found.append([(sum(flops[place] for place in stage.trained), frozen)])
        before.update(stage.frozen)
    return found
