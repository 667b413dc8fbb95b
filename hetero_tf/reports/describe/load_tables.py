"""The `Loads` of a recipe as JSON and as text tables."""

import dataclasses
from fractions import Fraction

from hetero_tf.base.console import format_table
from hetero_tf.base.units import MIB
from hetero_tf.reports.describe.loads import Loads, round_totals
from hetero_tf.runs.plain_json import finite


def to_json(loads: Loads) -> dict:
    """Return a plain dict, ready for JSON.

    Returns:
        {"whole", "batch", "measure", "tolerance", "levels": {level: the attributes of `LevelLoad`, "estimate",
        "of_budget", "over"}, "round": see `round_totals`}; budgets are text, such as "1/4".
    """
    levels = {}
    for load in loads.levels:
        levels[load.level] = dataclasses.asdict(load) | {
            "budget": None if load.budget is None else str(load.budget),
            "estimate": load.estimate,
            "of_budget": loads.of_budget(load),
            "over": loads.is_over(load),
        }
        del levels[load.level]["level"]
        for part in levels[load.level]["parts"]:
            part["held"] = part.pop("amount")
    return finite({**vars(loads), "levels": levels, "round": round_totals(loads)})


def to_text(loads: Loads) -> str:
    """Return tables of the estimates and budgets of all levels, their stages if any, and the totals of a round."""
    parts = [_levels(loads), _stages(loads), _notes(loads)]
    return "\n\n".join(part for part in parts if part)


def _levels(loads):
    measure, unit = loads.measure, _UNITS[loads.measure][0]
    rows = [("level", "budget", f"budget {unit}", "trains", "left out", f"estimate {unit}", "of budget")]
    for load in loads.levels:
        share, budget, amount, usage = loads.of_budget(load), "-", "-", "-"
        if share is not None:
            budget, amount = str(load.budget), _format_amount(measure, load.budget * Fraction(loads.whole))
            usage = f"{100 * share:.1f} %" + " OVER" * loads.is_over(load)
        estimate = _format_amount(measure, load.estimate)
        rows.append((load.level, budget, amount, load.trains, _format_units(load.skipped), estimate, usage))
    return format_table(rows)


def _stages(loads):
    """Return one row for each stage of levels with several stages."""
    rows = [("level", "stage", "units", _UNITS[loads.measure][0], "buffer MiB")]
    for load in loads.levels:
        if len(load.parts) > 1:
            rows += [
                (
                    load.level,
                    str(number),
                    _format_units(part.units),
                    _format_amount(loads.measure, part.amount),
                    _format_amount("memory", part.buffer) if part.buffer else "-",
                )
                for number, part in enumerate(load.parts, 1)
            ]
    has_buffers = any(part.buffer for load in loads.levels for part in load.parts)
    return format_table(rows if has_buffers else [row[:-1] for row in rows]) if len(rows) > 1 else ""


def _notes(loads):
    totals = round_totals(loads)
    return (
        f"full model: {_format_amount(loads.measure, loads.whole)} {_full_model_measure(loads)}. Budgets are "
        f"shares of it; {100 * loads.tolerance:g} % more is allowed.\n"
        f"a round of {totals['clients']:,.10g} clients: {totals['bytes_down']:,.0f} bytes down, "
        f"{totals['bytes_up']:,.0f} bytes up, {totals['train_flops']:.4g} FLOPs of training, expected."
    )


# Unit of a measure, and its divisor.
_UNITS = {"memory": ("MiB", MIB), "multiply_adds": ("million multiply-adds", 1e6)}


def _full_model_measure(loads):
    if loads.measure == "memory":
        return f"MiB of training memory (FeDepth's convention, batches of {loads.batch})"
    return "million multiply-adds for one example, forward"


def _format_amount(measure, amount):
    return f"{float(amount) / _UNITS[measure][1]:,.2f}"


def _format_units(units):
    """Return the first and last name of consecutive units; "-" if there are none."""
    return f"{units[0]} to {units[-1]}" if len(units) > 1 else "".join(units) or "-"
