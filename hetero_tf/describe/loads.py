"""Who trains what under which budget, and what a round costs in all: for programs (JSON) and for people (tables).

Plain data go in, so that any way of training a part of a model can be described.
"""

from dataclasses import dataclass
from fractions import Fraction

from hetero_tf.base.console import table


@dataclass(frozen=True)
class Part:
    """What a client trains at a time: its whole sub-model, or one stage of it.

    Attributes:
        units: Names of the units that are packed into it.
        held: What counts against a budget, see `memory.UnitCost.by`.
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
        trains: What they train, as a person says it: "width 0.5", "2 of 4 exits", "3 members", "6 stages".
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
    def estimate(self):
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

    def of_budget(self, load):
        """The estimate of a level as a share of its budget; None where it has none."""
        return None if load.budget is None else load.estimate / float(load.budget * Fraction(self.whole))

    def is_over(self, load):
        """Whether the estimate exceeds the budget by more than the tolerance."""
        share = self.of_budget(load)
        return share is not None and share > (1 + self.tolerance) * (1 + 1e-9)


def round_totals(loads):
    """{"clients", "bytes_down", "bytes_up", "train_flops"} of a round, expected over the mix."""
    each = {
        name: sum(load.clients * getattr(load, name) for load in loads.levels)
        for name in ("bytes_down", "bytes_up", "train_flops")
    }
    return {"clients": sum(load.clients for load in loads.levels), **each}


def to_json(loads):
    """Plain dict, ready for JSON: {"whole", "batch", "measure", "tolerance", "levels": {level: {"budget" (text or
    None), "trains", "skipped", "parts", "estimate", "of_budget", "over", "clients", "bytes_down", "bytes_up",
    "train_flops"}}, "round": as `round_totals`}."""
    levels = {
        load.level: {
            "budget": None if load.budget is None else str(load.budget),
            "trains": load.trains,
            "skipped": list(load.skipped),
            "parts": [{"units": list(part.units), "held": part.held, "buffer": part.buffer} for part in load.parts],
            "estimate": load.estimate,
            "of_budget": loads.of_budget(load),
            "over": loads.is_over(load),
            "clients": load.clients,
            "bytes_down": load.bytes_down,
            "bytes_up": load.bytes_up,
            "train_flops": load.train_flops,
        }
        for load in loads.levels
    }
    return {
        "whole": loads.whole,
        "batch": loads.batch,
        "measure": loads.measure,
        "tolerance": loads.tolerance,
        "levels": levels,
        "round": round_totals(loads),
    }


def to_text(loads):
    """The estimate of every level against its budget, the stages where there are any, and the totals of a round."""
    parts = [_levels(loads), _stages(loads), _notes(loads)]
    return "\n\n".join(part for part in parts if part)


def _levels(loads):
    measure, unit = loads.measure, _UNITS[loads.measure][0]
    rows = [("level", "budget", f"budget {unit}", "trains", "left out", f"estimate {unit}", "of budget")]
    for load in loads.levels:
        share = loads.of_budget(load)
        limit = ("-", "-")
        if share is not None:
            limit = str(load.budget), _amount(measure, load.budget * Fraction(loads.whole))
        told = "-" if share is None else f"{100 * share:.1f} %" + " OVER" * loads.is_over(load)
        rows.append((load.level, *limit, load.trains, _span(load.skipped), _amount(measure, load.estimate), told))
    return table(rows)


def _stages(loads):
    """One row for each stage of the levels that have several."""
    rows = [("level", "stage", "units", _UNITS[loads.measure][0], "buffer MB")]
    for load in loads.levels:
        if len(load.parts) > 1:
            rows += [
                (
                    load.level,
                    str(number),
                    _span(part.units),
                    _amount(loads.measure, part.held),
                    _amount("memory", part.buffer) if part.buffer else "-",
                )
                for number, part in enumerate(load.parts, 1)
            ]
    kept = any(part.buffer for load in loads.levels for part in load.parts)
    return table(rows if kept else [row[:-1] for row in rows]) if len(rows) > 1 else ""


def _notes(loads):
    totals = round_totals(loads)
    return "\n".join(
        (
            f"full model: {_amount(loads.measure, loads.whole)} {_whole(loads)}. Budgets are shares of it; "
            f"{100 * loads.tolerance:g} % more is allowed.",
            f"a round of {totals['clients']:,.10g} clients: {totals['bytes_down']:,.0f} bytes down, "
            f"{totals['bytes_up']:,.0f} bytes up, {totals['train_flops']:.4g} FLOPs of training, expected.",
        )
    )


# How an amount is written, and how many of the measure make one.
_UNITS = {"memory": ("MB", 2**20), "multiply_adds": ("million multiply-adds", 1e6)}


def _whole(loads):
    if loads.measure == "memory":
        return f"MB of training memory (FeDepth's convention, batches of {loads.batch})"
    return "million multiply-adds for one example, forward"


def _amount(measure, held):
    return f"{float(held) / _UNITS[measure][1]:,.2f}"


def _span(units):
    """Names of consecutive units: the first and the last of them, "-" if there are none."""
    if len(units) < 2:
        return "".join(units) or "-"
    return f"{units[0]} to {units[-1]}"
