"""Training load of each level under its budget, and the totals of a round."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hetero_tf.models.costs.cost_report import LevelCost, stage_widths
from hetero_tf.models.costs.counting import TABLE_BATCH
from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.costs.memory import as_fraction, stage_memory
from hetero_tf.models.family import ModelFamily


@dataclass(frozen=True)
class StageLoad:
    """Load of one stage, or of a sub-model that a client trains in one stage.

    Attributes:
        units: Names of its units.
        amount: Amount that counts against a budget, see `counting.ForwardCost.by`.
        buffer: Bytes of the buffer of a client with the mean number of examples; 0: no buffer.
    """

    units: tuple[str, ...]
    amount: float
    buffer: float


@dataclass(frozen=True)
class LevelLoad:
    """Load of a client of one level.

    Attributes:
        level: Name of the level.
        budget: Budget as a share of the full model; None: unlimited.
        trains: Trained part as text: "width 0.5", "2 of 4 exits", "3 members", "6 stages"; "takes no part" for an idle
            level.
        skipped: Names of the units that exceed the budget.
        parts: Stages in order; the largest is the estimate.
        clients: Expected active clients of this level in a round.
        bytes_down, bytes_up: Weights that one client receives and sends in a round.
        train_flops: Operations of one client's local training in a round.
    """

    level: str
    budget: Fraction | None
    trains: str
    skipped: tuple[str, ...]
    parts: tuple[StageLoad, ...]
    clients: float
    bytes_down: float
    bytes_up: float
    train_flops: float

    @property
    def estimate(self) -> float:
        """The amount of the largest stage."""
        return max(part.amount for part in self.parts)


@dataclass(frozen=True)
class Loads:
    """All levels of a recipe.

    Attributes:
        whole: Amount of the full model.
        batch: Examples of a step in all estimates.
        measure: Measure of amounts and budgets: memory (bytes of training) or multiply_adds.
        tolerance: Share by which a budget may be exceeded.
        levels: Tuple of `LevelLoad`.
    """

    whole: float
    batch: int
    measure: str
    tolerance: float
    levels: tuple[LevelLoad, ...]

    def of_budget(self, load: LevelLoad) -> float | None:
        """Return the estimate of a level as a share of its budget; None without a budget."""
        return None if load.budget is None else load.estimate / float(load.budget * Fraction(self.whole))

    def is_over(self, load: LevelLoad) -> bool:
        """Return True if the estimate exceeds the budget by more than the tolerance; an idle level never does."""
        share = self.of_budget(load)
        return share is not None and load.clients > 0 and share > (1 + self.tolerance) * (1 + 1e-9)


def round_totals(loads: Loads) -> dict[str, float]:
    """Return the expected {"clients", "bytes_down", "bytes_up", "train_flops"} of a round."""
    each = {
        name: sum(load.clients * getattr(load, name) for load in loads.levels)
        for name in ("bytes_down", "bytes_up", "train_flops")
    }
    return {"clients": sum(load.clients for load in loads.levels), **each}


def has_unequal_loads(family: ModelFamily) -> bool:
    """Return True if the levels of a recipe differ in more than their widths."""
    levels = family.recipe.levels
    return bool(levels.budgets or levels.depths or levels.members) or (
        not family.drawn and any(len(stages) > 1 or len(stage_widths(stages)) > 1 for stages in family.stages.values())
    )


def level_loads(costs: LevelCosts, cost_by_level: dict[str, LevelCost], examples: float) -> Loads:
    """Return the `Loads` of the levels of the mix.

    Args:
        costs: Level costs with all classes.
        cost_by_level: `{level: LevelCost}`.
        examples: Examples (segments of text) of a client in one local epoch, mean over all clients.
    """
    recipe, family = costs.family.recipe, costs.family
    active = recipe.levels.active(recipe.round.clients)
    levels = []
    for name in recipe.levels.names:
        flops = costs.train_flops(name)
        flops_per_example = sum(flops) / len(flops) if family.drawn else sum(flops)
        budget, cost = recipe.levels.budget_of(name), cost_by_level[name]
        levels.append(
            LevelLoad(
                name,
                None if budget is None else as_fraction(budget),
                _training_summary(costs, name),
                _skipped_units(costs, name),
                _parts(costs, name, examples),
                active[name],
                cost.bytes_down,
                cost.bytes_up,
                flops_per_example * examples * recipe.client.epochs_of(name) * recipe.levels.networks_of(name),
            )
        )
    return Loads(costs.full_cost, TABLE_BATCH, recipe.levels.measure, recipe.levels.tolerance, tuple(levels))


def _training_summary(costs, level):
    """Return the part that the clients of a level train, as text."""
    recipe, family = costs.family.recipe, costs.family
    levels, stages, exits = recipe.levels, family.stages[level], len(recipe.model.exits) + 1
    if level in levels.idle:
        return "takes no part"
    if levels.members:
        return f"{levels.members[level]} member{'s' * (levels.members[level] > 1)}"
    networks, has_stages = len(stages[0].trained_by_network), len(stages) > 1 and not family.drawn
    if networks > 1:
        return f"{networks} models" + (f", one in {len(stages)} stages" if has_stages else "")
    if has_stages:
        return f"{len(stages)} stages"
    if len(stage_widths(stages)) > 1 and not family.drawn:
        return f"{len(stage_widths(stages))} widths"
    if levels.depths:
        return f"{levels.depth_of(level, exits)} of {exits} exits"
    return "all" if levels.widths[level] == 1 else f"width {as_fraction(levels.widths[level])}"


def _skipped_units(costs, level):
    """Return the trunk units that no stage of a level trains."""
    trained = frozenset().union(*(stage.trained for stage in costs.stages(level)))
    return tuple(unit for unit in costs.family.recipe.model.trunk if unit not in trained)


def _parts(costs, level, examples):
    """Return the `StageLoad`s of a level; `examples` is the number of examples of a client."""
    units_and_amounts = stage_memory(costs, level)
    stages = costs.stages(level) if len(units_and_amounts) > 1 else (None,)
    return tuple(
        StageLoad(part.units, part.amount, 0 if stage is None else examples * _buffer_bytes(costs.family, stage))
        for part, stage in zip(units_and_amounts, stages, strict=True)
    )


def _buffer_bytes(family, stage):
    """Return the buffer bytes of a stage for one example."""
    if stage.before is None:
        return 0
    shape = family.single_client_model(stage.before, family.classes).outputs[0].shape[1:]
    return math.prod(shape) * np.dtype(family.recipe.float_type).itemsize
