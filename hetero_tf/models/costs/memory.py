"""Memory of the clients of a level compared with their budgets; and levels that are reduced to fit their budgets."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.base.units import MIB
from hetero_tf.methods.stages.budgets import cap, fits
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import build_family
from hetero_tf.recipe.model import Width
from hetero_tf.recipe.schema import Levels, Mebibytes, Recipe

# The largest denominator of a fraction in a recipe.
DENOMINATORS = 9999


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a client that trains its full sub-model, or one stage of it.

    Attributes:
        units: Names of the counted units.
        amount: Their cost in the measure of the budgets: bytes, or multiply-adds.
    """

    units: tuple[str, ...]
    amount: float


def stage_memory(costs: LevelCosts, level: str) -> tuple[MemoryUse, ...]:
    """Return the memory of a level's clients: one value for each stage, or a single one for one stage or drawn stages.

    Several networks of a client add up, and so do several widths in a step whose coupling compares their outputs; other
    widths can run one after the other. If levels differ in the units that their clients train at a time (blocks,
    depths), no estimate contains the first and the last unit, as in FeDepth's Table 1, whose budgets are shares of the
    full model with both.

    Reference: FeDepth (Zhang et al. 2023, arXiv 2303.04887), Table 1 and section 5.
    """
    family, model, levels = costs.family, costs.family.recipe.model, costs.family.recipe.levels
    stages, ends = costs.stages(level), {model.trunk[0], model.trunk[-1]}

    def amount(units, width):
        costs_of_units = costs.units(level, width)
        return sum(costs_of_units[unit].by(levels.measure) for unit in units)

    def routed(stage):
        """Add up the routes of a stage; routes of one network count separately unless a loss compares their outputs."""
        compared = registry.find("couplings", family.recipe.client.coupling.name).READS_LOGITS
        combine: Callable[[list[int]], int] = sum if compared else max
        amounts: list[list[int]] = [[] for _ in stage.trained_by_network]
        for route in stage.routes:
            units = [*route.units, *(model.exits[number][1] for number in route.exits if number in model.exits)]
            counted = [unit for unit in units if unit not in ends or not levels.depths]
            amounts[route.network].append(amount(counted, route.width))
        return MemoryUse(units_of(stage), levels.networks_of(level) * sum(map(combine, amounts)))

    def units_of(stage):
        return tuple(dict.fromkeys(unit for route in stage.routes for unit in route.units))

    def block(stage):
        """Add up the units with gradients in a stage; networks that are trained completely count all of theirs."""
        blocks = [
            model.trunk
            if stage.trained_by_network[route.network].issuperset(model.trunk)
            else tuple(unit for unit in route.units[route.frozen :] if unit not in ends)
            for route in stage.routes
        ]
        return MemoryUse(blocks[-1], sum(amount(units, levels.widths[level]) for units in blocks))

    if len(stages) == 1 or family.drawn:
        return (max(map(routed, stages), key=lambda use: use.amount),)
    return tuple(map(block, stages))


def estimate(costs: LevelCosts, level: str) -> float:
    """Return the largest memory of a level's clients."""
    return max(use.amount for use in stage_memory(costs, level))


def budget_shares(costs: LevelCosts) -> dict[str, float]:
    """Return `{level: memory as a share of its budget}` of the active levels that have a budget."""
    levels = costs.family.recipe.levels
    return {
        name: estimate(costs, name) / (levels.budgets[name] * costs.full_cost)
        for name in levels.names
        if name in levels.budgets and name not in levels.idle
    }


def over_budget(costs: LevelCosts) -> dict[str, float]:
    """Return the `budget_shares` of the levels that exceed their budget."""
    limit = 1 + costs.family.recipe.levels.tolerance
    return {name: share for name, share in budget_shares(costs).items() if not fits(share, limit)}


def fit_levels(
    recipe: Recipe, shape: tuple[int | None, ...], example: tuple[int, ...], classes: int, counted: dict | None = None
) -> Recipe:
    """Return a recipe whose budgets are shares of the full model, with its levels reduced by `levels.fit`.

    Args:
        shape: Shape of one input without the batch axis, see `models.build_model.build_model`.
        example: The same without None.
        classes: Length of the global label axis.
        counted: See `LevelCosts`; empty by default.
    """
    levels, counted = recipe.levels, {} if counted is None else counted
    if levels.fit in (None, "device") and not any(isinstance(budget, Mebibytes) for budget in levels.budgets.values()):
        return recipe
    # Without budgets, so that building the family does not check them.
    free = dataclasses.replace(recipe, levels=dataclasses.replace(levels, budgets={}, fit=None))
    full_cost = LevelCosts(build_family(free, shape, example, classes), example, classes, counted).full_cost
    budgets = {name: _as_share(budget, full_cost) for name, budget in levels.budgets.items()}
    levels = dataclasses.replace(levels, budgets=budgets)
    if levels.fit in (None, "device"):
        return dataclasses.replace(recipe, levels=levels)

    def holds(name, **changes):
        """Return the memory of a level's clients after some changes of the levels."""
        changed_recipe = dataclasses.replace(free, levels=dataclasses.replace(free.levels, **changes))
        return estimate(
            LevelCosts(build_family(changed_recipe, shape, example, classes), example, classes, counted), name
        )

    limits = {
        name: cap(share, full_cost, levels.tolerance) for name, share in budgets.items() if name not in levels.idle
    }
    changes = _FITS[levels.fit](recipe, limits, holds) if limits else {}
    return dataclasses.replace(recipe, levels=dataclasses.replace(levels, **changes))


def as_fraction(share: float) -> Fraction:
    """Return a share as the fraction that a recipe would write for it."""
    return Fraction(share).limit_denominator(DENOMINATORS)


def describe_fit(levels: Levels) -> str:
    """Describe levels for a user: "widths a 1, b 1/2; members a 6, b 3"."""
    widths = {name: as_fraction(width) for name, width in levels.widths.items() if name in levels.names}
    settings: dict[str, dict] = {"widths": widths, "depths": levels.depths, "members": levels.members}
    return "; ".join(
        f"{setting} " + ", ".join(f"{name} {value}" for name, value in values.items())
        for setting, values in settings.items()
        if values
    )


def _as_share(budget: float | Mebibytes, full_cost: float) -> float:
    return budget.amount * MIB / full_cost if isinstance(budget, Mebibytes) else budget


def _widths(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Return every level's width, reduced if its budget requires it."""
    values = recipe.levels.widths

    def fits_at(name):
        return _widest(
            recipe, name, values[name], limits[name], lambda width: {"widths": {**values, name: width}}, holds
        )

    return {"widths": {name: fits_at(name) if name in limits else width for name, width in values.items()}}


def _common_width(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Return one width for all levels: the smallest of theirs, reduced if the smallest budget requires it."""
    levels, level = recipe.levels, min(limits, key=lambda name: limits[name])

    def change(width):
        return {"widths": dict.fromkeys(levels.widths, width)}

    start = min(levels.widths[name] for name in levels.names)
    return change(_widest(recipe, level, start, limits[level], change, holds))


def _depths(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Return every level's exit and width: a shallower exit if its budget requires it, then fewer channels."""
    depths, widths = dict(recipe.levels.depths), recipe.levels.widths

    def width_of(name, limit):
        while depths.get(name, 1) > 1 and not fits(holds(name, depths=depths), limit):
            depths[name] -= 1
        if depths.get(name) != 1:
            return widths[name]

        def change(width):
            return {"depths": depths, "widths": {**widths, name: width}}

        return _widest(recipe, name, widths[name], limit, change, holds)

    narrowed = {name: width_of(name, limit) for name, limit in limits.items()}
    return {"depths": depths, "widths": widths | narrowed}


def _members(recipe: Recipe, limits: dict[str, float], holds: Callable) -> dict:
    """Return the networks that fit each budget, at most the level's; of the width that fits the smallest budget."""
    levels, level = recipe.levels, min(limits, key=lambda name: limits[name])

    def change(width):
        return {"members": dict.fromkeys(levels.members, 1), "widths": dict.fromkeys(levels.widths, width)}

    changes = change(_widest(recipe, level, levels.widths[level], limits[level], change, holds))
    # The cost of one network; budgets hold a multiple of it.
    per_network = holds(level, **changes)
    members = {
        name: max(1, min(max_members, math.floor(limits[name] / per_network))) if name in limits else max_members
        for name, max_members in levels.members.items()
    }
    return {"members": members, "widths": changes["widths"]}


def _widest(recipe, name, start, limit, change, holds):
    """Return the largest width up to `start` at which a level's clients need at most the limit.

    Widths are multiples of the finest `!w` size of the model; `change(width)`: the arguments of `holds` for it.
    """
    memory_at_start = holds(name, **change(start))
    if fits(memory_at_start, limit):
        return start
    granularity = max(_width_sizes(recipe), default=1)

    def fits_at(steps):
        return fits(holds(name, **change(steps / granularity)), limit)

    # Memory is roughly proportional to the width, so the search starts close to its result.
    steps = max(math.floor(start * granularity * limit / memory_at_start), 1)
    if fits_at(steps):
        while (steps + 1) / granularity < start and fits_at(steps + 1):
            steps += 1
        return steps / granularity
    while steps > 1:
        steps -= 1
        if fits_at(steps):
            return steps / granularity
    raise InputError(
        f"levels.fit: even the narrowest model exceeds the budget of level {name}; raise its budget, or exclude its "
        f"clients by levels.idle. Received: levels.budgets.{name}={recipe.levels.budgets[name]}"
    )


def _width_sizes(recipe):
    """Return the sizes of all `!w` of a model."""
    return [value.size for spec in recipe.model.layers for value in spec.args.values() if isinstance(value, Width)]


_FITS = {"widths": _widths, "common_width": _common_width, "depths": _depths, "members": _members}
