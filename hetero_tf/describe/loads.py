"""Which client trains what under which budget, and what a round of all of them costs."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hetero_tf.models.costs.cost_report import LevelCost, widths_of
from hetero_tf.models.costs.level_costs import Costs
from hetero_tf.models.costs.memory import as_fraction, held
from hetero_tf.models.costs.unit_costs import TABLE_BATCH
from hetero_tf.models.family import ModelFamily


@dataclass(frozen=True)
class Part:
    """What a client trains at a time: its whole sub-model, or one stage of it.

    Attributes:
        units: Names of the units that are packed into it.
        held: What counts against a budget, see `UnitCost.by`.
        buffer: Bytes that a client with as many examples as the mean keeps beside it, see `buffers`; 0: none.
    """

    units: tuple[str, ...]
    held: float
    buffer: float


@dataclass(frozen=True)
class LevelLoad:
    """A client of one level.

    Attributes:
        level: Its name.
        budget: Share of the full model that its clients can hold, or None: not limited.
        trains: What they train, as a person says it: "width 0.5", "2 of 4 exits", "3 members", "6 stages";
            "takes no part" where the level is idle.
        skipped: Names of the units that they cannot hold.
        parts: One, or one for each stage, in order; the largest is the estimate.
        clients: Active clients of this level in a round, expected.
        bytes_down, bytes_up: Weights that one client receives and sends in a round.
        train_flops: Operations of one client's local training in a round.
    """

    level: str
    budget: Fraction | None
    trains: str
    skipped: tuple[str, ...]
    parts: tuple[Part, ...]
    clients: float
    bytes_down: float
    bytes_up: float
    train_flops: float

    @property
    def estimate(self) -> float:
        """What the largest part holds."""
        return max(part.held for part in self.parts)


@dataclass(frozen=True)
class Loads:
    """All levels of a recipe.

    Attributes:
        whole: What the full model holds.
        batch: Examples of a step in all these estimates.
        measure: What is held, and what budgets are shares of: bytes of training memory, or multiply_adds.
        tolerance: Share by which a budget may be exceeded.
        levels: Tuple of `LevelLoad`.
    """

    whole: float
    batch: int
    measure: str
    tolerance: float
    levels: tuple[LevelLoad, ...]

    def of_budget(self, load: LevelLoad) -> float | None:
        """The estimate of a level as a share of its budget; None where it has none."""
        return None if load.budget is None else load.estimate / float(load.budget * Fraction(self.whole))

    def is_over(self, load: LevelLoad) -> bool:
        """Whether the estimate exceeds the budget by more than the tolerance; an idle level holds nothing."""
        share = self.of_budget(load)
        return share is not None and load.clients > 0 and share > (1 + self.tolerance) * (1 + 1e-9)


def round_totals(loads: Loads) -> dict[str, float]:
    """{"clients", "bytes_down", "bytes_up", "train_flops"} of a round, expected over the mix."""
    each = {
        name: sum(load.clients * getattr(load, name) for load in loads.levels)
        for name in ("bytes_down", "bytes_up", "train_flops")
    }
    return {"clients": sum(load.clients for load in loads.levels), **each}


def is_divided(family: ModelFamily) -> bool:
    """Whether the levels of a recipe differ in more than their widths, so that there is something to tell."""
    levels = family.recipe.levels
    return bool(levels.budgets or levels.depths or levels.members) or (
        not family.drawn and any(len(stages) > 1 or len(widths_of(stages)) > 1 for stages in family.stages.values())
    )


def level_loads(costs: Costs, described: dict[str, LevelCost], examples: float) -> Loads:
    """The `Loads` of the levels of the mix.

    Args:
        costs: `levels.Costs`, with all classes.
        described: `{level: LevelCost}`.
        examples: Examples (segments of text) that a client goes through in one local epoch, mean over all clients.
    """
    recipe, family = costs.family.recipe, costs.family
    many = recipe.levels.active(recipe.round.clients)
    levels = []
    for name in recipe.levels.names:
        flops = costs.train_flops(name)
        once = sum(flops) / len(flops) if family.drawn else sum(flops)
        budget, cost = recipe.levels.budgets.get(name), described[name]
        levels.append(
            LevelLoad(
                name,
                None if budget is None else as_fraction(budget),
                _trains(costs, name),
                _skipped(costs, name),
                _parts(costs, name, examples),
                many[name],
                cost.bytes_down,
                cost.bytes_up,
                once * examples * recipe.client.epochs_of(name) * recipe.levels.members.get(name, 1),
            )
        )
    return Loads(costs.whole, TABLE_BATCH, recipe.levels.measure, recipe.levels.tolerance, tuple(levels))


def _trains(costs, level):
    """What the clients of a level train, for a person."""
    recipe, family = costs.family.recipe, costs.family
    levels, stages, exits = recipe.levels, family.stages[level], len(recipe.model.exits) + 1
    if level in levels.idle:
        return "takes no part"
    if levels.members:
        return _counted(levels.members[level], "member")
    networks, several = len(stages[0].trained_by_network), len(stages) > 1 and not family.drawn
    if networks > 1:
        return f"{networks} models" + (f", one in {len(stages)} stages" if several else "")
    if several:
        return f"{len(stages)} stages"
    if len(widths_of(stages)) > 1 and not family.drawn:
        return f"{len(widths_of(stages))} widths"
    if levels.depths:
        return f"{levels.depths.get(level, exits)} of {exits} exits"
    return "all" if levels.widths[level] == 1 else f"width {as_fraction(levels.widths[level])}"


def _counted(count, what):
    return f"{count} {what}{'s' * (count > 1)}"


def _skipped(costs, level):
    """Units of the trunk that no stage of a level trains."""
    trained = frozenset().union(*(stage.trained for stage in costs.stages(level)))
    return tuple(unit for unit in costs.family.recipe.model.trunk if unit not in trained)


def _parts(costs, level, examples):
    """What a client of a level holds at a time; `examples`: how many it has."""
    found = held(costs, level)
    stages = costs.stages(level) if len(found) > 1 else (None,)
    return tuple(
        Part(one.units, one.amount, 0 if stage is None else examples * _buffered(costs.family, stage))
        for one, stage in zip(found, stages, strict=True)
    )


def _buffered(family, stage):
    """Bytes that a stage's buffer takes for one example."""
    if stage.before is None:
        return 0
    kept = family.alone(stage.before, family.classes).outputs[0].shape[1:]
    return math.prod(kept) * np.dtype(family.recipe.float_type).itemsize
