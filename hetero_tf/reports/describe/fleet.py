"""Time, memory and energy of a recipe on its fleet: a round of each level on each device, and the run by policy."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import registry
from hetero_tf.base.console import format_table
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.units import TIME_UNITS, format_bytes, format_number, time_unit
from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.models.costs.memory import LevelWork
from hetero_tf.planning.fleets.devices import Devices, class_devices, devices_of
from hetero_tf.planning.selection import able_clients, count_clients, reads_state
from hetero_tf.planning.timing import round_policy
from hetero_tf.recipe.schema import Fleet, Recipe
from hetero_tf.run.learning_process import LearningProcess

# Clients of a trace that represent its devices: label, and share of the clients that are faster.
QUANTILES = {"fast": 0.05, "median": 0.5, "slow": 0.95}
# Clients whose rounds are planned for a forecast, in at least the least number of rounds.
PLANNED_CLIENTS, LEAST_ROUNDS = 400, 3
# Share of the clients that return before the deadline, if the recipe does not set one.
IN_TIME = 0.8
# Options in the label of a policy, and their units.
NUMBERS = {"seconds": " s", "factor": "", "size": ""}
JOULES_PER_WATT_HOUR = 3600


@dataclass(frozen=True)
class DeviceLoad:
    """A client of one level on one device, with the mean number of examples and the median speed of its class.

    Attributes:
        download, compute, upload, total: Seconds in a round.
        energy: Joules of a round.
        memory: Training memory as a share of the memory of the device; 0 without a limit.
        trains: False if its device is excluded by `levels.fit: device`, or its level is idle.
        idle: Share of a round that it waits for the slowest of all loads; None if it does not train.
    """

    level: str
    device: str
    download: float
    compute: float
    upload: float
    total: float
    energy: float
    memory: float
    trains: bool
    idle: float | None = None


@dataclass(frozen=True)
class Forecast:
    """A whole run with one policy, extrapolated from its first rounds.

    Attributes:
        policy: Name, and the option that it depends on.
        in_recipe: True for the policy of the recipe.
        rounds: Rounds of the run; those of an asynchronous policy merge as many results in total.
        seconds: Device time of the run.
        bytes: Traffic of the run in both directions.
        energy: Joules of the run.
        busy: Share of the device time in which clients transfer or compute, and do not wait for the end of a round.
        merged: Share of the clients that start whose results are merged.
    """

    policy: str
    in_recipe: bool
    rounds: int
    planned: int
    seconds: float
    bytes: float
    energy: float
    busy: float
    merged: float


@dataclass(frozen=True)
class FleetReport:
    """A recipe on its fleet.

    Attributes:
        examples: Number of examples of a client in `loads`, the mean of all clients.
        loads: Loads of all levels of the mix on all devices of the fleet.
        forecasts: Forecast of the run for each policy.
        unplanned: Name of the recipe's selection if it reads results of training, so that the forecasts are made with
            the uniform one; else None.
    """

    examples: int
    loads: tuple[DeviceLoad, ...]
    forecasts: tuple[Forecast, ...]
    unplanned: str | None = None


def fleet_report(process: LearningProcess) -> FleetReport:
    """Return the report of a learning process with a fleet; nothing is trained."""
    recipe, examples = process.recipe, round(process.partition.train.sizes.mean())
    loads = tuple(load for level, work in process.level_work.items() for load in _loads(process, level, work, examples))
    slowest = max((load.total for load in loads if load.trains), default=0.0)
    if slowest:
        loads = tuple(
            dataclasses.replace(load, idle=1 - load.total / slowest) if load.trains else load for load in loads
        )
    return FleetReport(
        examples, loads, _forecasts(process), recipe.round.selection.name if reads_state(recipe) else None
    )


def _loads(process: LearningProcess, level: str, work: LevelWork, examples: int) -> Iterator[DeviceLoad]:
    """Yield the loads of a level on all devices of the fleet."""
    recipe, levels = process.recipe, process.recipe.levels
    labels, devices = _representatives(recipe, len(process.partition.train), work, examples)
    times = work.times(devices, np.full(len(labels), examples))
    columns = (times.download, times.compute, times.upload, times.total, times.energy, devices.memory)
    for device, *seconds, total, energy, memory in zip(labels, *(column.tolist() for column in columns)):
        if recipe.fleet is not None and recipe.fleet.assign == "levels" and device != level:
            continue
        share = work.memory / memory
        fits = levels.fit != "device" or share <= 1 and total <= (levels.fit_seconds or np.inf)
        download, compute, upload = seconds
        trains = fits and level not in levels.idle
        yield DeviceLoad(level, device, download, compute, upload, total, energy, share, trains)


def _representatives(recipe: Recipe, clients: int, work: LevelWork, examples: int) -> tuple[list[str], Devices]:
    """Return the labels and the devices: the classes of the fleet, or three clients of its trace."""
    fleet = recipe.fleet or Fleet()
    if fleet.trace is None:
        return list(fleet.devices), class_devices(fleet)
    devices = devices_of(fleet, recipe.seed, np.arange(clients), clients=clients)
    order = np.argsort(work.times(devices, np.full(clients, examples)).total)
    return list(QUANTILES), devices.take(order[[int(share * clients) for share in QUANTILES.values()]])


def _forecasts(process: LearningProcess) -> tuple[Forecast, ...]:
    """Return the forecast of each policy that has enough clients."""
    recipe = process.recipe
    waiting, client_seconds = _forecast(process, Plugin("wait"))
    able = count_clients(able_clients(recipe.levels, len(process.partition.train), recipe.seed, 0))
    typical = {"seconds": float(np.quantile(client_seconds, IN_TIME)), "size": recipe.round.clients}
    results = [waiting]
    for name in registry.names("policies"):
        options = registry.options("policies", name)
        if name == recipe.round.policy.name:
            policy = recipe.round.policy
        elif all(key in typical or not option.required for key, option in options.items()):
            policy = Plugin(name, {key: typical.get(key, option.default) for key, option in options.items()})
        else:
            continue
        if name != "wait" and round_policy(_planned_recipe(recipe, policy)).cohort_size(recipe.round.clients) <= able:
            results.append(_forecast(process, policy)[0])
    return tuple(results)


def _planned_recipe(recipe: Recipe, policy: Plugin) -> Recipe:
    """Return the recipe with a policy, and with the uniform selection if its own one reads results of training."""
    selection = Plugin("uniform") if reads_state(recipe) else recipe.round.selection
    return dataclasses.replace(recipe, round=dataclasses.replace(recipe.round, policy=policy, selection=selection))


def _forecast(process, policy):
    """Return the forecast of a policy, and the seconds of the clients of its planned rounds: float64 [n]."""
    in_recipe, rounds = policy.name == process.recipe.round.policy.name, process.recipe.rounds
    recipe = _planned_recipe(process.recipe, policy)
    process, rule = dataclasses.replace(process, recipe=recipe), round_policy(recipe)
    clients = results = rule.cohort_size(recipe.round.clients)
    if isinstance(rule, AsynchronousPolicy):
        results = rule.buffer
        rounds = rounds if in_recipe else math.ceil(rounds * clients / results)
    planned = min(max(LEAST_ROUNDS, PLANNED_CLIENTS // results), rounds)
    plans = [process.plan(number) for number in range(planned)]
    timings, costs = [plan.timing for plan in plans], [process.round_cost(plan) for plan in plans]
    seconds = sum(each.seconds for each in timings)
    client_seconds = np.concatenate([each.times.total for each in timings])
    numbers = [f"{format_number(policy.options[key])}{unit}" for key, unit in NUMBERS.items() if key in policy.options]
    forecast = Forecast(
        policy=" ".join([policy.name, *numbers]),
        in_recipe=in_recipe,
        rounds=rounds,
        planned=planned,
        seconds=seconds * rounds / planned,
        bytes=sum(int(each.bytes_down.sum() + each.bytes_up.sum()) for each in costs) * rounds / planned,
        energy=sum(float(each.times.energy.sum()) for each in timings) * rounds / planned,
        busy=min(float(client_seconds.sum() / (clients * seconds)), 1.0) if seconds else 1.0,
        merged=float(np.mean(np.concatenate([each.steps for each in timings]) > 0)),
    )
    return forecast, client_seconds


def to_text(report: FleetReport) -> str:
    """Return tables of the time of a round by level and device, and of the whole run by policy."""
    rows = [("level", "device", "download", "compute", "upload", "total", "idle", "memory", "energy")]
    for load in report.loads:
        seconds = (f"{format_number(value)} s" for value in (load.download, load.compute, load.upload, load.total))
        idle = "-" if load.idle is None else f"{100 * load.idle:.0f} %"
        rows.append((load.level, load.device, *seconds, idle, _memory(load), f"{format_number(load.energy)} J"))
    slowest = max((load for load in report.loads if load.trains), key=lambda load: load.total)
    return (
        f"{format_table(rows)}\n"
        f"a round of a client with {report.examples:,} examples on each device of the fleet, without spread\n"
        f"idle: share of a round that waits for the slowest, level {slowest.level} on {slowest.device}\n"
        f"memory: of training a batch, as a share of that of the device\n\n{_forecast_table(report)}"
    )


def _memory(load):
    share = f"{100 * load.memory:.0f} %" if load.memory < 10 else f"{load.memory:.0f}x"
    over = " OVER" if load.trains else " unfit"
    return "-" if load.memory == 0 else share + over * (load.memory > 1)


def _forecast_table(report):
    rows = [("policy", "rounds", "time", "traffic", "energy", "busy", "merged")]
    unit = time_unit(max(each.seconds for each in report.forecasts))
    for each in report.forecasts:
        time = f"{format_number(each.seconds / TIME_UNITS[unit])} {unit}"
        energy = f"{format_number(each.energy / JOULES_PER_WATT_HOUR)} Wh"
        shares = (f"{100 * share:.0f} %" for share in (each.busy, each.merged))
        name = each.policy + " *" * each.in_recipe
        rows.append((name, f"{each.rounds:,}", time, format_bytes(each.bytes), energy, *shares))
    note = f"\nclients are drawn uniformly, since {report.unplanned} chooses by results of the run"
    return (
        f"{format_table(rows)}\n"
        f"forecast of the run from at least {min(each.planned for each in report.forecasts):,} planned rounds; "
        "*: policy of the recipe\n"
        "busy: share of the time in which clients do not wait for the end of a round\n"
        f"merged: share of the clients that start whose results are merged{note * bool(report.unplanned)}"
    )
