"""The `FleetReport` of a recipe as JSON and as text tables."""

from hetero_tf.base.console import format_table
from hetero_tf.base.units import TIME_UNITS, format_bytes, format_number, time_unit
from hetero_tf.reports.describe.fleet_loads import DeviceLoad, FleetReport

JOULES_PER_WATT_HOUR = 3600


def to_json(report: FleetReport) -> dict:
    """Return a plain dict, ready for JSON.

    Returns:
        {"examples", "loads": [the attributes of `DeviceLoad`, "total"], "unplanned", "forecasts": [the attributes of
        `Forecast`]}; seconds, bytes, joules and shares.
    """
    loads = [{**vars(load), "total": load.total} for load in report.loads]
    return {
        "examples": report.examples,
        "loads": loads,
        "unplanned": report.unplanned,
        "forecasts": [vars(each) for each in report.forecasts],
    }


def to_text(report: FleetReport) -> str:
    """Return tables of the time of a round by level and device, and of the whole run by policy."""
    return f"{_loads(report)}\n\n{_forecasts(report)}"


def _loads(report):
    rows = [("level", "device", "download", "compute", "upload", "total", "idle", "memory", "energy")]
    for load in report.loads:
        seconds = (f"{format_number(value)} s" for value in (load.download, load.compute, load.upload, load.total))
        idle = "-" if load.idle is None else f"{100 * load.idle:.0f} %"
        rows.append((load.level, load.device, *seconds, idle, _memory(load), f"{format_number(load.energy)} J"))
    slowest = max((load for load in report.loads if load.trains), key=lambda load: load.total)
    return f"{format_table(rows)}\n{_notes(report, slowest)}"


def _notes(report, slowest):
    return (
        f"a round of a client with {report.examples:,} examples on each device of the fleet, without spread\n"
        f"idle: share of a round that waits for the slowest, level {slowest.level} on {slowest.device}\n"
        "memory: of training a batch, as a share of that of the device"
    )


def _forecasts(report):
    rows = [("policy", "rounds", "time", "traffic", "energy", "busy", "merged")]
    unit = time_unit(max(each.seconds for each in report.forecasts))
    for each in report.forecasts:
        time, shares = f"{format_number(each.seconds / TIME_UNITS[unit])} {unit}", (each.busy, each.merged)
        energy = f"{format_number(each.energy / JOULES_PER_WATT_HOUR)} Wh"
        percent = (f"{100 * share:.0f} %" for share in shares)
        name = each.policy + " *" * each.in_recipe
        rows.append((name, f"{each.rounds:,}", time, format_bytes(each.bytes), energy, *percent))
    planned = min(each.planned for each in report.forecasts)
    note = (
        f"\nclients are drawn uniformly, since {report.unplanned} chooses by results of the run"
        if report.unplanned
        else ""
    )
    return (
        f"{format_table(rows)}\n"
        f"forecast of the run from at least {planned:,} planned rounds; *: policy of the recipe\n"
        "busy: share of the time in which clients do not wait for the end of a round\n"
        f"merged: share of the clients that start whose results are merged{note}"
    )


def _memory(load: DeviceLoad) -> str:
    share = f"{100 * load.memory:.0f} %" if load.memory < 10 else f"{load.memory:.0f}x"
    over = " OVER" if load.trains else " unfit"
    return "-" if load.memory == 0 else share + over * (load.memory > 1)
