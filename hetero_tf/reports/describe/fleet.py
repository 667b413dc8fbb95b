"""Time, memory and energy of a recipe on its fleet: a round of each level on each device, and the run."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from hetero_tf.base.console import format_duration, format_table
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.formatting import format_bytes, format_number
from hetero_tf.methods.policies import AsynchronousPolicy, round_policy
from hetero_tf.models.costs.memory import LevelWork
from hetero_tf.planning.fleets.devices import Devices, class_devices, devices_of
from hetero_tf.planning.selection import reads_state
from hetero_tf.recipe.schema import Fleet, Recipe
from hetero_tf.run.learning_process import LearningProcess

# Clients of a trace that represent its devices: label, and share of the clients that are faster.
QUANTILES = {"fast": 0.05, "median": 0.5, "slow": 0.95}
# Clients whose rounds are planned for a forecast, in at least the least number of rounds.
PLANNED_CLIENTS, LEAST_ROUNDS = 400, 3
# Options in the label of a policy, and their units.
NUMBERS = {"seconds": " s", "factor": "", "size": ""}
JOULES_PER_WATT_HOUR = 3600


def fleet_report(process: LearningProcess) -> dict[str, Any]:
    """Return the report of a learning process with a fleet, ready for JSON; nothing is trained.

    Returns:
        {"examples": number of examples of a client in "loads", the mean of all clients,
        "loads": of each level on each device {"level", "device", "download", "compute", "upload", "total" (seconds of a
        round), "energy" (joules), "memory" (of training, as a share of that of the device; 0 without a limit), "trains"
        (False if `levels.fit: device` excludes the device, or the level is idle), "idle" (share of a round before the
        slowest load ends; None if it does not train)},
        "forecast": of the run, extrapolated from its first "planned" rounds, {"policy", "rounds", "seconds", "bytes"
        (in both directions), "energy", "busy" (share of the time in which clients transfer or compute), "merged" (share
        of the results)},
        "unplanned": name of the recipe's selection if it reads results of training, so that the forecast is made with
        the uniform one; else None}
    """
    recipe, examples = process.recipe, round(process.partition.train.sizes.mean())
    loads = [load for level, work in process.level_work.items() for load in _loads(process, level, work, examples)]
    slowest = max((load["total"] for load in loads if load["trains"]), default=0.0)
    for load in loads:
        load["idle"] = 1 - load["total"] / slowest if slowest and load["trains"] else None
    unplanned = recipe.round.selection.name if reads_state(recipe) else None
    return {"examples": examples, "loads": loads, "forecast": _forecast(process), "unplanned": unplanned}


def _loads(process: LearningProcess, level: str, work: LevelWork, examples: int) -> Iterator[dict[str, Any]]:
    recipe, levels = process.recipe, process.recipe.levels
    labels, devices = _representatives(recipe, len(process.partition.train), work, examples)
    times = work.times(devices, np.full(len(labels), examples))
    names = ("download", "compute", "upload", "total", "energy")
    columns = [getattr(times, name).tolist() for name in names]
    for device, limit, *values in zip(labels, devices.memory.tolist(), *columns):
        if recipe.fleet is not None and recipe.fleet.assign == "levels" and device != level:
            continue
        load = {"level": level, "device": device, **dict(zip(names, values)), "memory": work.memory / limit}
        fits = load["memory"] <= 1 and load["total"] <= (levels.fit_seconds or np.inf)
        yield load | {"trains": level not in levels.idle and (levels.fit != "device" or fits)}


def _representatives(recipe: Recipe, clients: int, work: LevelWork, examples: int) -> tuple[list[str], Devices]:
    """Return the labels and the devices: the classes of the fleet, or three clients of its trace."""
    fleet = recipe.fleet or Fleet()
    if fleet.trace is None:
        return list(fleet.devices), class_devices(fleet)
    devices = devices_of(fleet, recipe.seed, np.arange(clients), clients=clients)
    order = np.argsort(work.times(devices, np.full(clients, examples)).total)
    return list(QUANTILES), devices.take(order[[int(share * clients) for share in QUANTILES.values()]])


def _forecast(process):
    """Return the forecast of the run with its policy, and with the uniform selection if its own one reads results."""
    recipe = process.recipe
    if reads_state(recipe):
        selection = Plugin("uniform")
        recipe = dataclasses.replace(recipe, round=dataclasses.replace(recipe.round, selection=selection))
        process = dataclasses.replace(process, recipe=recipe)
    rounds, policy = recipe.rounds, recipe.round.policy
    rule = round_policy(policy)
    clients = rule.cohort_size(recipe.round.clients)
    results = rule.buffer if isinstance(rule, AsynchronousPolicy) else clients
    planned = min(max(LEAST_ROUNDS, PLANNED_CLIENTS // results), rounds)
    plans = [process.plan(number) for number in range(planned)]
    timings, costs = [plan.timing for plan in plans], [process.round_cost(plan) for plan in plans]
    seconds = sum(each.seconds for each in timings)
    client_seconds = np.concatenate([each.times.total for each in timings])
    numbers = [f"{format_number(policy.options[key])}{unit}" for key, unit in NUMBERS.items() if key in policy.options]
    return {
        "policy": " ".join([policy.name, *numbers]),
        "rounds": rounds,
        "planned": planned,
        "seconds": seconds * rounds / planned,
        "bytes": sum(int(each.bytes_down.sum() + each.bytes_up.sum()) for each in costs) * rounds / planned,
        "energy": sum(float(each.times.energy.sum()) for each in timings) * rounds / planned,
        "busy": min(float(client_seconds.sum() / (clients * seconds)), 1.0) if seconds else 1.0,
        "merged": float(np.mean(np.concatenate([each.steps for each in timings]) > 0)),
    }


def to_text(report: dict[str, Any], complete: bool = True) -> str:
    """Return the forecast of the run as a table; `complete`: after one of a round by level and device."""
    if not complete:
        return _forecast_table(report, "")
    rows = [("level", "device", "download", "compute", "upload", "total", "idle", "memory", "energy")]
    for load in report["loads"]:
        seconds = (f"{format_number(load[name])} s" for name in ("download", "compute", "upload", "total"))
        idle = "-" if load["idle"] is None else f"{100 * load['idle']:.0f} %"
        energy = f"{format_number(load['energy'])} J"
        rows.append((load["level"], load["device"], *seconds, idle, _memory(load["memory"], load["trains"]), energy))
    slowest = max((load for load in report["loads"] if load["trains"]), key=lambda load: load["total"])
    meanings = (
        "\nbusy: share of the time in which clients do not wait for the end of a round\n"
        "merged: share of the clients that start whose results are merged"
    )
    return (
        f"{format_table(rows)}\n"
        f"a round of a client with {report['examples']:,} examples on each device of the fleet, without spread\n"
        f"idle: share of a round that waits for the slowest, level {slowest['level']} on {slowest['device']}\n"
        f"memory: of training a batch, as a share of that of the device\n\n{_forecast_table(report, meanings)}"
    )


def _memory(share, trains):
    text = f"{100 * share:.0f} %" if share < 10 else f"{share:.0f}x"
    return "-" if share == 0 else text + (" OVER" if trains else " unfit") * (share > 1)


def _forecast_table(report, meanings):
    forecast = report["forecast"]
    energy = f"{format_number(forecast['energy'] / JOULES_PER_WATT_HOUR)} Wh"
    shares = (f"{100 * forecast[name]:.0f} %" for name in ("busy", "merged"))
    time, traffic = format_duration(forecast["seconds"]), format_bytes(forecast["bytes"])
    heads = ("policy", "rounds", "time", "traffic", "energy", "busy", "merged")
    rows = [heads, (forecast["policy"], f"{forecast['rounds']:,}", time, traffic, energy, *shares)]
    note = f"\nclients are drawn uniformly, since {report['unplanned']} chooses by results of the run"
    return (
        f"{format_table(rows)}\n"
        f"forecast of the run from {forecast['planned']:,} planned rounds{meanings}{note * bool(report['unplanned'])}"
    )
