"""Training load of each level under its budget, the totals of a round, and their tables."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hetero_tf.base.console import format_table
from hetero_tf.base.units import MIB
from hetero_tf.models.costs.counting import TABLE_BATCH
from hetero_tf.models.costs.level_costs import LevelCost, LevelCosts, stage_widths
from hetero_tf.models.costs.memory import as_fraction, stage_memory
from hetero_tf.models.family import ModelFamily

# Unit of a measure, and its divisor.
UNITS = {"memory": ("MiB", MIB), "multiply_adds": ("million multiply-adds", 1e6)}


@dataclass(frozen=True)
class StageLoad:
    """Load of one stage, or of a sub-model that a client trains in one stage.

    Attributes:
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
        budget: Budget as a share of the full model, such as "1/4"; None: unlimited.
        trains: Trained part as text: "width 0.5", "2 of 4 exits", "3 members", "6 stages"; "takes no part" for an idle
            level.
        skipped: Names of the units that exceed the budget.
        clients: Expected active clients of this level in a round.
        bytes_down, bytes_up: Weights that one client receives and sends in a round.
        train_flops: Operations of one client's local training in a round.
        estimate: Amount of the largest stage.
        of_budget: The estimate as a share of the budget; None without a budget.
        over: The estimate exceeds the budget by more than the tolerance; an idle level never does.
    """

    budget: str | None
    trains: str
    skipped: tuple[str, ...]
    parts: tuple[StageLoad, ...]
    clients: float
    bytes_down: float
    bytes_up: float
    train_flops: float
    estimate: float
    of_budget: float | None
    over: bool


@dataclass(frozen=True)
class Loads:
    """All levels of a recipe.

    Attributes:
        batch: Examples of a step in all estimates.
        measure: Measure of amounts and budgets: memory (bytes of training) or multiply_adds.
        tolerance: Share by which a budget may be exceeded.
        round: Expected {"clients", "bytes_down", "bytes_up", "train_flops"} of a round.
    """

    whole: float
    batch: int
    measure: str
    tolerance: float
    levels: dict[str, LevelLoad]
    round: dict[str, float]


def has_unequal_loads(family: ModelFamily) -> bool:
    """Return True if the levels of a recipe differ in more than their widths."""
    levels = family.recipe.levels
    return bool(levels.budgets or levels.depths or levels.members) or (
        not family.drawn and any(len(stages) > 1 or len(stage_widths(stages)) > 1 for stages in family.stages.values())
    )


def level_loads(costs: LevelCosts, cost_by_level: dict[str, LevelCost], examples: float) -> Loads:
    """Return the `Loads` of the levels of the mix."""
    levels = costs.family.recipe.levels
    loads = {name: _level_load(costs, name, cost_by_level[name], examples) for name in levels.names}
    totals = {
        name: sum(load.clients * getattr(load, name) for load in loads.values())
        for name in ("bytes_down", "bytes_up", "train_flops")
    }
    totals = {"clients": sum(load.clients for load in loads.values()), **totals}
    return Loads(costs.full_cost, TABLE_BATCH, levels.measure, levels.tolerance, loads, totals)


def _level_load(costs, name, cost, examples):
    recipe, family = costs.family.recipe, costs.family
    flops, budget, parts = costs.train_flops(name), recipe.levels.budget_of(name), _parts(costs, name, examples)
    flops_per_example = sum(flops) / len(flops) if family.drawn else sum(flops)
    clients, estimate = recipe.levels.active(recipe.round.clients)[name], max(part.amount for part in parts)
    share = None if budget is None else estimate / float(as_fraction(budget) * Fraction(costs.full_cost))
    return LevelLoad(
        budget=None if budget is None else str(as_fraction(budget)),
        trains=_training_summary(costs, name),
        skipped=_skipped_units(costs, name),
        parts=parts,
        clients=clients,
        bytes_down=cost.bytes_down,
        bytes_up=cost.bytes_up,
        train_flops=flops_per_example * examples * recipe.client.epochs_of(name) * recipe.levels.networks_of(name),
        estimate=estimate,
        of_budget=share,
        over=share is not None and clients > 0 and share > (1 + recipe.levels.tolerance) * (1 + 1e-9),
    )


def _training_summary(costs, level):
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
    trained = frozenset().union(*(stage.trained for stage in costs.stages(level)))
    return tuple(unit for unit in costs.family.recipe.model.trunk if unit not in trained)


def _parts(costs, level, examples):
    """Return the `StageLoad`s of a level; `examples` is the number of examples of a client."""
    uses = stage_memory(costs, level)
    stages = costs.stages(level) if len(uses) > 1 else (None,)
    return tuple(
        StageLoad(use.units, use.amount, 0 if stage is None else examples * _buffer_bytes(costs.family, stage))
        for use, stage in zip(uses, stages, strict=True)
    )


def _buffer_bytes(family, stage):
    if stage.before is None:
        return 0
    shape = family.single_client_model(stage.before, family.classes).outputs[0].shape[1:]
    return math.prod(shape) * np.dtype(family.recipe.float_type).itemsize


def to_text(loads: Loads) -> str:
    """Return tables of the estimates and budgets of all levels, their stages if any, and the totals of a round."""
    unit, divisor = UNITS[loads.measure]
    levels = [("level", "budget", f"budget {unit}", "trains", "left out", f"estimate {unit}", "of budget")]
    stages: list[tuple[str, ...]] = [("level", "stage", "units", unit, "buffer MiB")]
    for name, load in loads.levels.items():
        budget, usage = ["-", "-"], "-"
        if load.budget is not None:
            budget = [load.budget, f"{float(Fraction(load.budget) * Fraction(loads.whole)) / divisor:,.2f}"]
            usage = f"{100 * (load.of_budget or 0):.1f} %{' OVER' * load.over}"
        levels.append((name, *budget, load.trains, _span(load.skipped), f"{load.estimate / divisor:,.2f}", usage))
        for number, part in enumerate(load.parts, 1) if len(load.parts) > 1 else ():
            buffer = f"{part.buffer / MIB:,.2f}" if part.buffer else "-"
            stages.append((name, str(number), _span(part.units), f"{part.amount / divisor:,.2f}", buffer))
    if all(buffer == "-" for *_, buffer in stages[1:]):
        stages = [row[:-1] for row in stages]
    tables = [format_table(levels), *([format_table(stages)] if len(stages) > 1 else [])]
    return "\n\n".join([*tables, _notes(loads, divisor)])


def _notes(loads, divisor):
    meaning = "million multiply-adds for one example, forward"
    if loads.measure == "memory":
        meaning = f"MiB of training memory (FeDepth's convention, batches of {loads.batch})"
    totals = loads.round
    return (
        f"full model: {loads.whole / divisor:,.2f} {meaning}. Budgets are shares of it; {100 * loads.tolerance:g} % "
        "more is allowed.\n"
        f"a round of {totals['clients']:,.10g} clients: {totals['bytes_down']:,.0f} bytes down, "
        f"{totals['bytes_up']:,.0f} bytes up, {totals['train_flops']:.4g} FLOPs of training, expected."
    )


def _span(units):
    """Return the first and last name of consecutive units; "-" if there are none."""
    return f"{units[0]} to {units[-1]}" if len(units) > 1 else "".join(units) or "-"
