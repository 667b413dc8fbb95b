"""The `loads.Loads` of a recipe: which client trains what under which budget, and what a round of them costs."""

import math
from fractions import Fraction

import numpy as np

from hetero_tf.describe.loads import LevelLoad, Loads, Part
from hetero_tf.models.unit_costs import TABLE_BATCH

# The recipe allows fractions of so large numbers.
DENOMINATORS = 9999


def is_divided(family):
    """Whether the levels of a recipe differ in more than their widths, so that there is something to tell."""
    levels = family.recipe.levels
    return bool(levels.budgets or levels.depths or levels.members) or (
        not family.drawn and any(len(stages) > 1 for stages in family.stages.values())
    )


def loads(costs, described, steps):
    """The `Loads` of the levels of the mix.

    Args:
        costs: `levels.Costs`, with all classes.
        described: `{level: LevelCost}`.
        steps: Examples (segments of text) that a client goes through in one local epoch, mean over all clients.
    """
    recipe, family = costs.family.recipe, costs.family
    top = recipe.levels.global_level
    whole = _held(costs, costs.units(top, recipe.levels.widths[top]), recipe.model.trunk)
    many = recipe.levels.divided(recipe.round.clients)
    tolerance = recipe.client.stages.options.get("tolerance", 0.0)
    levels = []
    for name in recipe.levels.names:
        flops = costs.train_flops(name)
        once = sum(flops) / len(flops) if family.drawn else sum(flops)
        budget, cost = recipe.levels.budgets.get(name), described[name]
        levels.append(
            LevelLoad(
                name,
                None if budget is None else Fraction(budget).limit_denominator(DENOMINATORS),
                _trains(costs, name),
                _skipped(costs, name),
                _parts(costs, name, steps),
                many[name],
                cost.bytes_down,
                cost.bytes_up,
                once * steps * recipe.client.epochs * recipe.levels.members.get(name, 1),
            )
        )
    return Loads(whole, TABLE_BATCH, recipe.levels.measure, tolerance, tuple(levels))


def _trains(costs, level):
    """What the clients of a level train, for a person."""
    recipe, family = costs.family.recipe, costs.family
    levels, stages, exits = recipe.levels, family.stages[level], len(recipe.model.exits) + 1
    if levels.members:
        return _counted(levels.members[level], "member")
    if len(stages) > 1 and not family.drawn:
        return f"{len(stages)} stages"
    copies = 1 + max(route.copy for route in stages[0].routes)
    if copies > 1:
        return f"{copies} models"
    if levels.depths:
        return f"{levels.depths.get(level, exits)} of {exits} exits"
    return "all" if levels.widths[level] == levels.widths[levels.global_level] else f"width {levels.widths[level]:g}"


def _counted(count, what):
    return f"{count} {what}{'s' * (count > 1)}"


def _skipped(costs, level):
    """Units of the trunk that no stage of a level trains."""
    trained = frozenset().union(*(stage.trained for stage in costs.stages(level)))
    return tuple(unit for unit in costs.family.recipe.model.trunk if unit not in trained)


def _parts(costs, level, examples):
    """What a client of a level holds at a time; `examples`: how many it has.

    The ends of the trunk and the branches stand in no stage's estimate, as in the paper: every stage has some.
    """
    family, stages, model = costs.family, costs.stages(level), costs.family.recipe.model
    if len(stages) == 1 or family.drawn:
        return (max((_whole(costs, level, stage) for stage in stages), key=lambda part: part.held),)
    found = costs.units(level, family.recipe.levels.widths[level])
    bodies = [tuple(unit for unit in model.trunk[1:-1] if unit in stage.trained) for stage in stages]
    return tuple(
        Part(body, _held(costs, found, body), examples * _buffered(family, stage))
        for body, stage in zip(bodies, stages)
    )


def _buffered(family, stage):
    """Bytes that a stage's buffer takes for one example."""
    if stage.before is None:
        return 0
    kept = family.alone(stage.before, family.classes).outputs[0].shape[1:]
    return math.prod(kept) * np.dtype(family.recipe.float_type).itemsize


def _whole(costs, level, stage):
    """The `Part` of a stage that holds all it runs: the units of its routes, which add up."""
    exits, total = costs.family.recipe.model.exits, 0
    for route in stage.routes:
        units = (*route.units, *(exits[number][1] for number in route.exits if number in exits))
        total += _held(costs, costs.units(level, route.width), units)
    return Part(units, total, 0)


def _held(costs, found, units):
    return sum(found[unit].by(costs.family.recipe.levels.measure) for unit in units)
