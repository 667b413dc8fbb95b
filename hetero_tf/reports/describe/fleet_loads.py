"""Time, memory and energy of a round for clients of each level on each device of the fleet."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hetero_tf.models.costs.device_fit import LevelWork
from hetero_tf.planning.fleets.devices import Devices, class_devices, devices_of
from hetero_tf.recipe.schema import Fleet, Recipe
from hetero_tf.reports.describe.forecasts import Forecast, forecasts, planned_selection
from hetero_tf.run.learning_process import LearningProcess

# Clients of a trace that represent its devices: label, and share of the clients that are faster.
QUANTILES = {"fast": 0.05, "median": 0.5, "slow": 0.95}


@dataclass(frozen=True)
class DeviceLoad:
    """A client of one level on one device, with the mean number of examples and the median speed of its class.

    Attributes:
        level, device: Names.
        download, compute, upload: Seconds in a round.
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
    energy: float
    memory: float
    trains: bool
    idle: float | None = None

    @property
    def total(self) -> float:
        """Seconds from the start of the download to the end of the upload."""
        return self.download + self.compute + self.upload


@dataclass(frozen=True)
class FleetReport:
    """A recipe on its fleet.

    Attributes:
        examples: Number of examples of a client in `loads`, the mean of all clients.
        loads: Of all levels of the mix on all devices of the fleet.
        forecasts: Of the run with each policy.
        unplanned: Name of the recipe's selection if it reads results of training, so that the forecasts are made with
            the uniform one; else None.
    """

    examples: int
    loads: tuple[DeviceLoad, ...]
    forecasts: tuple[Forecast, ...]
    unplanned: str | None = None


def fleet_report(process: LearningProcess) -> FleetReport:
    """Return the report of a learning process with a fleet."""
    examples = round(process.partition.train.sizes.mean())
    selection = process.recipe.round.selection
    unplanned = None if planned_selection(process.recipe) == selection else selection.name
    return FleetReport(examples, device_loads(process, examples), forecasts(process), unplanned)


def device_loads(process: LearningProcess, examples: int) -> tuple[DeviceLoad, ...]:
    """Return the loads of all levels of the mix on all devices of the fleet.

    Args:
        process: A learning process with a fleet.
        examples: Number of examples of a client.
    """
    loads: list[DeviceLoad] = []
    for level, work in process.level_work.items():
        labels, devices = _representatives(process.recipe, len(process.partition.train), work, examples)
        loads += _level_loads(process.recipe, level, work, labels, devices, examples)
    slowest = max((load.total for load in loads if load.trains), default=0.0)
    return tuple(
        DeviceLoad(**{**vars(load), "idle": 1 - load.total / slowest if load.trains and slowest else None})
        for load in loads
    )


def _representatives(recipe: Recipe, clients: int, work: LevelWork, examples: int) -> tuple[list[str], Devices]:
    """Return the labels and the devices: the classes of the fleet, or three clients of its trace."""
    fleet = recipe.fleet or Fleet()
    if fleet.trace is None:
        return list(fleet.devices), class_devices(fleet)
    devices = devices_of(fleet, recipe.seed, np.arange(clients), clients=clients)
    order = np.argsort(work.times(devices, np.full(clients, examples)).total)
    return list(QUANTILES), devices.take(order[[int(share * clients) for share in QUANTILES.values()]])


def _level_loads(
    recipe: Recipe, level: str, work: LevelWork, labels: list[str], devices: Devices, examples: int
) -> Iterator[DeviceLoad]:
    times, levels = work.times(devices, np.full(len(labels), examples)), recipe.levels
    is_by_level = recipe.fleet is not None and recipe.fleet.assign == "levels"
    for index, device in enumerate(labels):
        if is_by_level and device != level:
            continue
        memory = work.memory / float(devices.memory[index])
        fits = levels.fit != "device" or memory <= 1 and times.total[index] <= (levels.fit_seconds or np.inf)
        yield DeviceLoad(
            level=level,
            device=device,
            download=float(times.download[index]),
            compute=float(times.compute[index]),
            upload=float(times.upload[index]),
            energy=float(times.energy[index]),
            memory=memory,
            trains=bool(fits) and level not in levels.idle,
        )
