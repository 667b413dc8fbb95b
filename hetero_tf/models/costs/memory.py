"""What the clients of a level hold at once, against their budgets; and levels that are made to fit these."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages.budgets import cap, fits
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.models.family import build_family
from hetero_tf.recipe.model import Width
from hetero_tf.recipe.schema import Levels, Megabytes, Recipe

MEGABYTE = 2**20
# The recipe allows fractions of so large numbers.
DENOMINATORS = 9999


@dataclass(frozen=True)
class Held:
    """What a client has in memory while it trains its whole sub-model, or one stage of it.

    Attributes:
        units: Names of the units that count.
        amount: What they take, in the measure of the budgets: bytes, or multiply-adds.
    """

    units: tuple[str, ...]
    amount: float


def held(costs: Costs, level: str) -> tuple[Held, ...]:
    """What the clients of a level hold: in each of their stages, or once where they have one or draw it.

    Several networks of a client add up, and so do several widths in a step whose coupling compares their outputs;
    others can be gone through one after the other. Where levels differ in the units that their clients train at a time
    (blocks, depths), the first and the last unit stand in no estimate, as in FeDepth's Table 1, whose budgets are
    shares of the whole model with both.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Table 1 and section 5.
    """
    family, model, levels = costs.family, costs.family.recipe.model, costs.family.recipe.levels
    stages, ends = costs.stages(level), {model.trunk[0], model.trunk[-1]}

    def amount(units, width):
        found = costs.units(level, width)
        return sum(found[unit].by(levels.measure) for unit in units)

    def routed(stage):
        """The routes of a stage, one after the other where no loss needs the outputs of two of one network."""
        compared = registry.find("couplings", family.recipe.client.coupling.name).READS_LOGITS
        together = sum if compared else max
        taken = [[] for _ in stage.trained_by_network]
        for route in stage.routes:
            units = [*route.units, *(model.exits[number][1] for number in route.exits if number in model.exits)]
            counted = [unit for unit in units if unit not in ends or not levels.depths]
            taken[route.network].append(amount(counted, route.width))
        return Held(units_of(stage), levels.members.get(level, 1) * sum(map(together, taken)))

    def units_of(stage):
        return tuple(dict.fromkeys(unit for route in stage.routes for unit in route.units))

    def block(stage):
        """The units that the gradients of a stage go through; networks that are trained whole hold all of theirs."""
        blocks = [
            model.trunk
            if stage.trained_by_network[route.network].issuperset(model.trunk)
            else tuple(unit for unit in route.units[route.frozen :] if unit not in ends)
            for route in stage.routes
        ]
        return Held(blocks[-1], sum(amount(units, levels.widths[level]) for units in blocks))

    if len(stages) == 1 or family.drawn:
        return (max(map(routed, stages), key=lambda one: one.amount),)
    return tuple(map(block, stages))


def estimate(costs: Costs, level: str) -> float:
    """The most that the clients of a level hold at once."""
    return max(one.amount for one in held(costs, level))


def exceeded(costs: Costs) -> dict[str, float]:
    """`{level: what its clients hold as a share of their budget}` of those that take part and exceed it."""
    levels = costs.family.recipe.levels
    found = {
        name: estimate(costs, name) / (levels.budgets[name] * costs.whole)
        for name in levels.names
        if name in levels.budgets and name not in levels.idle
    }
    return {name: share for name, share in found.items() if not fits(share, 1 + levels.tolerance)}


def fitted(
    recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int, counted: dict | None = None
) -> Recipe:
    """Returns a recipe whose budgets are shares of the whole model, and whose levels are as `levels.fit` makes them.

    Args:
        recipe: The recipe.
        shape: Of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
        counted: See `Costs`; None: nothing is counted yet.
    """
    levels, counted = recipe.levels, {} if counted is None else counted
    if levels.fit is None and not any(isinstance(budget, Megabytes) for budget in levels.budgets.values()):
        return recipe
    free = dataclasses.replace(recipe, levels=dataclasses.replace(levels, budgets={}, fit=None))
    whole = Costs(build_family(free, shape, example, classes), example, classes, counted).whole
    budgets = {name: _share(budget, whole) for name, budget in levels.budgets.items()}
    levels = dataclasses.replace(levels, budgets=budgets)
    if levels.fit is None:
        return dataclasses.replace(recipe, levels=levels)

    def holds(name, **changes):
        """What the clients of a level would hold after some changes of the levels."""
        changed = dataclasses.replace(free, levels=dataclasses.replace(free.levels, **changes))
        return estimate(Costs(build_family(changed, shape, example, classes), example, classes, counted), name)

    limits = {name: cap(share, whole, levels.tolerance) for name, share in budgets.items() if name not in levels.idle}
    changes = _FITS[levels.fit](recipe, limits, holds) if limits else {}
    return dataclasses.replace(recipe, levels=dataclasses.replace(levels, **changes))


def as_fraction(share: float) -> Fraction:
    """Returns a share as the fraction that a recipe would write for it."""
    return Fraction(share).limit_denominator(DENOMINATORS)


def told(levels: Levels) -> str:
    """What levels have, for a person: "widths a 1, b 1/2; members a 6, b 3"."""
    widths = {name: as_fraction(width) for name, width in levels.widths.items() if name in levels.names}
    parts = {"widths": widths, "depths": levels.depths, "members": levels.members}
    return "; ".join(
        f"{what} " + ", ".join(f"{name} {value}" for name, value in given.items())
        for what, given in parts.items()
        if given
    )


def _share(budget: float | Megabytes, whole: float) -> float:
    return budget.amount * MEGABYTE / whole if isinstance(budget, Megabytes) else budget


def _widths(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Every level's own width, narrower where its budget asks for it."""
    given = recipe.levels.widths

    def fitting(name):
        return _widest(recipe, name, given[name], limits[name], lambda width: {"widths": {**given, name: width}}, holds)

    return {"widths": {name: fitting(name) if name in limits else width for name, width in given.items()}}


def _common_width(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """One width for all levels: the smallest of theirs, narrower where the smallest budget asks for it."""
    levels, level = recipe.levels, min(limits, key=lambda name: limits[name])

    def changed(width):
        return {"widths": dict.fromkeys(levels.widths, width)}

    start = min(levels.widths[name] for name in levels.names)
    return changed(_widest(recipe, level, start, limits[level], changed, holds))


def _depths(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Every level's own exit, a shallower one where its budget asks for it."""
    depths = dict(recipe.levels.depths)
    for name, limit in limits.items():
        while depths.get(name, 1) > 1 and not fits(holds(name, depths=depths), limit):
            depths[name] -= 1
    return {"depths": depths}


def _members(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """As many networks as each budget holds, up to the level's own; of the width that the smallest budget holds."""
    levels, level = recipe.levels, min(limits, key=lambda name: limits[name])

    def changed(width):
        return {"members": dict.fromkeys(levels.members, 1), "widths": dict.fromkeys(levels.widths, width)}

    one = changed(_widest(recipe, level, levels.widths[level], limits[level], changed, holds))
    each = holds(level, **one)
    members = {
        name: max(1, min(most, math.floor(limits[name] / each))) if name in limits else most
        for name, most in levels.members.items()
    }
    return {"members": members, "widths": one["widths"]}


def _widest(recipe, name, start, limit, changed, holds):
    """The largest width up to `start` with which the clients of a level hold no more than the limit.

    Widths go in steps of the finest `!w` size of the model; `changed(width)`: what `holds` takes for it.
    """
    most = holds(name, **changed(start))
    if fits(most, limit):
        return start
    finest = max(_sizes(recipe), default=1)

    def fitting(steps):
        return fits(holds(name, **changed(steps / finest)), limit)

    # Memory grows about as the width does, so the search begins close to its end.
    steps = max(math.floor(start * finest * limit / most), 1)
    if fitting(steps):
        while (steps + 1) / finest < start and fitting(steps + 1):
            steps += 1
        return steps / finest
    while steps > 1:
        steps -= 1
        if fitting(steps):
            return steps / finest
    raise InputError(
        f"levels.fit: even the narrowest model exceeds the budget of level {name}; raise its budget, or leave its "
        f"clients out by levels.idle. Received: levels.budgets.{name}={recipe.levels.budgets[name]}"
    )


def _sizes(recipe):
    """The sizes of all `!w` of a model."""
    return [value.size for spec in recipe.model.layers for value in spec.args.values() if isinstance(value, Width)]


_FITS = {"widths": _widths, "common_width": _common_width, "depths": _depths, "members": _members}
