"""Training load of each level under its budget, the totals of a round, and their tables."""

from fractions import Fraction
from typing import Any

from hetero_tf.base.console import format_table
from hetero_tf.base.formatting import MIB
from hetero_tf.models.costs.counting import TABLE_BATCH
from hetero_tf.models.costs.level_costs import LevelCost, LevelCosts, stage_widths
from hetero_tf.models.costs.memory import as_fraction, stage_memory
from hetero_tf.models.family import ModelFamily

# Unit of a measure, and its divisor.
UNITS = {"memory": ("MiB", MIB), "multiply_adds": ("million multiply-adds", 1e6)}


def has_unequal_loads(family: ModelFamily) -> bool:
    """Return True if the levels of a recipe differ in more than their widths."""
    levels = family.recipe.levels
    return bool(levels.budgets or levels.depths or levels.members) or (
        not family.drawn and any(len(stages) > 1 or len(stage_widths(stages)) > 1 for stages in family.stages.values())
    )


def level_loads(costs: LevelCosts, cost_by_level: dict[str, LevelCost], examples: float) -> dict[str, Any]:
    """Return the loads of the levels of the mix, ready for JSON.

    Returns:
        {"whole": amount of the full model, "batch": examples of a step in all estimates,
        "measure": memory (bytes of training) or multiply_adds, "tolerance": share by which a budget may be exceeded,
        "levels": of a client of each level {"budget": as a share of the full model, such as "1/4", or None,
        "trains": trained part as text, "skipped": names of the units that exceed the budget, "parts": of each stage
        {"units", "amount"}, "clients": expected active ones in a round, "bytes_down", "bytes_up", "train_flops" of a
        round, "estimate": amount of the largest stage, "of_budget": its share of the budget or None, "over": whether it
        exceeds the budget by more than the tolerance},
        "round": expected {"clients", "bytes_down", "bytes_up", "train_flops"}}
    """
    levels = costs.family.recipe.levels
    loads = {name: _level_load(costs, name, cost_by_level[name], examples) for name in levels.names}
    totals = {
        name: sum(load["clients"] * load[name] for load in loads.values())
        for name in ("bytes_down", "bytes_up", "train_flops")
    }
    return {
        "whole": costs.full_cost,
        "batch": TABLE_BATCH,
        "measure": levels.measure,
        "tolerance": levels.tolerance,
        "levels": loads,
        "round": {"clients": sum(load["clients"] for load in loads.values()), **totals},
    }


def _level_load(costs, name, cost, examples):
    recipe, family = costs.family.recipe, costs.family
    flops, budget = costs.train_flops(name), recipe.levels.budgets.get(name)
    parts: list[dict[str, Any]] = [{"units": use.units, "amount": use.amount} for use in stage_memory(costs, name)]
    flops_per_example = sum(flops) / len(flops) if family.drawn else sum(flops)
    clients, estimate = recipe.levels.active(recipe.round.clients)[name], max(part["amount"] for part in parts)
    share = None if budget is None else estimate / float(as_fraction(budget) * Fraction(costs.full_cost))
    trained = frozenset().union(*(stage.trained for stage in costs.stages(name)))
    return {
        "budget": None if budget is None else str(as_fraction(budget)),
        "trains": _training_summary(costs, name),
        "skipped": tuple(unit for unit in recipe.model.trunk if unit not in trained),
        "parts": parts,
        "clients": clients,
        "bytes_down": cost.bytes_down,
        "bytes_up": cost.bytes_up,
        "train_flops": flops_per_example * examples * recipe.client.epochs_of(name) * recipe.levels.networks_of(name),
        "estimate": estimate,
        "of_budget": share,
        "over": share is not None and clients > 0 and share > (1 + recipe.levels.tolerance) * (1 + 1e-9),
    }


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
        return f"{levels.depths.get(level, exits)} of {exits} exits"
    return "all" if levels.widths[level] == 1 else f"width {as_fraction(levels.widths[level])}"


def to_text(loads: dict[str, Any], complete: bool = True) -> str:
    """Return a table of the estimates and budgets of all levels; `complete`: also stages, and a round's totals."""
    unit, divisor = UNITS[loads["measure"]]
    levels = [("level", "budget", f"budget {unit}", "trains", "left out", f"estimate {unit}", "of budget")]
    stages: list[tuple[str, ...]] = [("level", "stage", "units", unit)]
    for name, load in loads["levels"].items():
        budget, usage = ["-", "-"], "-"
        if load["budget"] is not None:
            budget = [load["budget"], f"{float(Fraction(load['budget']) * Fraction(loads['whole'])) / divisor:,.2f}"]
            usage = f"{100 * (load['of_budget'] or 0):.1f} %{' OVER' * load['over']}"
        levels.append(
            (name, *budget, load["trains"], _span(load["skipped"]), f"{load['estimate'] / divisor:,.2f}", usage)
        )
        for number, part in enumerate(load["parts"], 1) if len(load["parts"]) > 1 else ():
            stages.append((name, str(number), _span(part["units"]), f"{part['amount'] / divisor:,.2f}"))
    if not complete:
        return format_table(levels)
    tables = [format_table(levels), *([format_table(stages)] if len(stages) > 1 else [])]
    return "\n\n".join([*tables, _notes(loads, divisor)])


def _notes(loads, divisor):
    meaning = "million multiply-adds for one example, forward"
    if loads["measure"] == "memory":
        meaning = f"MiB of training memory (FeDepth's convention, batches of {loads['batch']})"
    totals, tolerance = loads["round"], 100 * loads["tolerance"]
    return (
        f"full model: {loads['whole'] / divisor:,.2f} {meaning}. Budgets are shares of it; {tolerance:g} % "
        "more is allowed.\n"
        f"a round of {totals['clients']:,.10g} clients: {totals['bytes_down']:,.0f} bytes down, "
        f"{totals['bytes_up']:,.0f} bytes up, {totals['train_flops']:.4g} FLOPs of training, expected."
    )


def _span(units):
    """Return the first and last name of consecutive units; "-" if there are none."""
    return f"{units[0]} to {units[-1]}" if len(units) > 1 else "".join(units) or "-"
