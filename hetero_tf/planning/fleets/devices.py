"""The device of each client."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.planning.fleets.device_table import MBIT, device_table, scale
from hetero_tf.recipe.schema import Fleet

# Lower bound of a half-normal time, in standard deviations.
SHORTEST = 1e-6
COLUMNS = ("speed", "seconds_per_step", "memory", "down", "up", "train_watts", "radio_watts", "dropout")


@dataclass(frozen=True)
class Devices:
    """Devices of n clients.

    Attributes:
        kind: int32 [n], index of the class in `fleet.devices`.
        speed: float64 [n], floating-point operations per second; inf if steps have a constant time only.
        seconds_per_step: float64 [n], constant seconds of each local step.
        memory: float64 [n], bytes for training; inf without a limit.
        down, up: float64 [n], bytes per second of the device; inf without a limit.
        train_watts, radio_watts: float64 [n].
        dropout: float64 [n], probability that the client returns nothing.
        shared_down, shared_up: Bytes per second that the clients of a round share; inf without a limit.
    """

    kind: np.ndarray
    speed: np.ndarray
    seconds_per_step: np.ndarray
    memory: np.ndarray
    down: np.ndarray
    up: np.ndarray
    train_watts: np.ndarray
    radio_watts: np.ndarray
    dropout: np.ndarray
    shared_down: float = math.inf
    shared_up: float = math.inf

    def take(self, indices: np.ndarray) -> "Devices":
        """Return the devices of some of the clients."""
        columns = {name: value[indices] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return dataclasses.replace(self, **columns)


def class_devices(fleet: Fleet) -> Devices:
    """Return the median device of each class of a fleet, without shared links."""
    table = device_table(fleet)
    kinds = np.arange(len(table.shares), dtype=np.int32)
    columns: dict[str, Any] = {name: table.columns[name] for name in COLUMNS}
    return Devices(kinds, **columns)


def devices_of(
    fleet: Fleet,
    seed: int,
    ids: np.ndarray,
    *,
    clients: int,
    levels: Sequence[str] | None = None,
    round: int | None = None,
) -> Devices:
    """Return the devices of clients.

    Args:
        ids: int [n], the clients.
        clients: Number of registered clients, which `assign: order` divides.
        levels: [n], the name of each client's level, for `assign: levels`.
        round: The round, whose jitter changes the speeds; None for the speeds without jitter.

    Returns:
        `Devices`; each is a pure function of (seed, client), its level and the round.

    Raises:
        InputError: The trace cannot be read or has invalid values; with file, line and column.
    """
    ids, table = np.asarray(ids), device_table(fleet)
    kind = _kinds(fleet, table, seed, ids, clients, levels)
    columns = {name: table.columns[name][kind] for name in COLUMNS}
    # Seconds relative to those of the class.
    pace = _pace(fleet, fleet.spread, _normal(seed, "device speed", 0, ids)) if fleet.spread else 1.0
    if fleet.jitter and round is not None:
        pace = pace * _pace(fleet, fleet.jitter, _normal(seed, "client pace", round, ids))
    columns["speed"] = columns["speed"] / pace
    columns["seconds_per_step"] = columns["seconds_per_step"] * pace
    shared: dict[str, Any] = {
        f"shared_{way}": scale(getattr(fleet, f"shared_{way}_mbit"), MBIT) for way in ("down", "up")
    }
    return Devices(kind, **columns, **shared)


def is_available(
    fleet: Fleet, seed: int, ids: np.ndarray, seconds: float, *, clients: int, levels: Sequence[str] | None = None
) -> np.ndarray:
    """Return which clients take part at a simulated time: within the hours of their devices, and while charging.

    Args:
        fleet, seed, ids, clients, levels: See `devices_of`.
        seconds: Simulated seconds since the start of the run, which is midnight in the first time zone.

    Returns:
        bool [n].
    """
    ids, table = np.asarray(ids), device_table(fleet)
    kind = _kinds(fleet, table, seed, ids, clients, levels)
    hour = seconds / 3600
    zone = np.floor(fleet.time_zones * seeds.uniform(seed, "time zone", ids=ids))
    local = (hour + zone) % 24
    available = seeds.uniform(seed, "charging", int(hour), ids=ids) < table.columns["charging"][kind]
    for index in np.unique(kind):
        if table.windows[index]:
            same = kind == index
            available[same] &= np.any([_is_within(local[same], *window) for window in table.windows[index]], axis=0)
    return available


def _is_within(hours, start, end):
    if start < end:
        return (hours >= start) & (hours < end)
    return (hours >= start) | (hours < end)


def _kinds(fleet, table, seed, ids, clients, levels):
    """Return the class of each client: int32 [n]."""
    if table.kinds is not None:
        return table.kinds[ids]
    if fleet.assign == "levels":
        index = {name: number for number, name in enumerate(fleet.devices)}
        return np.asarray([index[name] for name in levels or ()], np.int32)
    # Position of the client among all of them, in [0, 1).
    position = (ids + 0.5) / clients if fleet.assign == "order" else seeds.uniform(seed, "device", ids=ids)
    ends = np.cumsum(table.shares)
    return np.searchsorted(ends[:-1] / ends[-1], position, side="right").astype(np.int32)


def _pace(fleet, deviation, normal):
    """Return the factor of the seconds for standard normal numbers: float64 [n]."""
    if fleet.distribution == "half_normal":
        return deviation * np.maximum(np.abs(normal), SHORTEST)
    return np.exp(deviation * normal)


def _normal(seed, purpose, round, ids):
    """Return one standard normal number for each id, by the Box-Muller transform."""
    first, second = (seeds.uniform(seed, purpose, round, part, ids=ids) for part in range(2))
    return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)


@dataclass(frozen=True)
class ClientTimes:
    """Simulated seconds and energy of n clients in a round.

    Attributes:
        download, compute, upload: float64 [n], seconds.
        energy: float64 [n], joules.
    """

    download: np.ndarray
    compute: np.ndarray
    upload: np.ndarray
    energy: np.ndarray

    @classmethod
    def of(cls, devices: Devices, download: np.ndarray, compute: np.ndarray, upload: np.ndarray) -> "ClientTimes":
        """Return the times with the energy that the devices use in them."""
        energy = compute * devices.train_watts + (download + upload) * devices.radio_watts
        return cls(download, compute, upload, energy)

    @property
    def total(self) -> np.ndarray:
        """Seconds from the start of the download to the end of the upload: float64 [n]."""
        return self.download + self.compute + self.upload


def local_steps(examples: np.ndarray, batch_size: int, passes: int | np.ndarray, starts: int) -> np.ndarray:
    """Return the local steps of passes over the `examples`, int [n], of clients; `starts`: steps of each batch."""
    return passes * -(-examples // batch_size) * starts


def client_times(
    devices: Devices, steps: np.ndarray, flops: np.ndarray, bytes_down: np.ndarray, bytes_up: np.ndarray
) -> ClientTimes:
    """Return the seconds and the energy of clients that start together.

    A client takes `bytes_down / down + steps * seconds_per_step + flops / speed + bytes_up / up` seconds, and uses
    `train_watts` during the computation and `radio_watts` during the transfers. On a shared link all clients of the
    call transfer at once and each gets an equal part of the rate, so the last of them ends when the link has
    transferred all their bytes; the slower of the shared link and the client's own link counts.

    Args:
        steps: int [n], local steps.
        flops: float [n], floating-point operations of all local steps, counted as `train_flops`.
        bytes_down, bytes_up: float [n].
    """
    compute = np.asarray(steps) * devices.seconds_per_step + np.asarray(flops) / devices.speed
    download = _transfer(np.asarray(bytes_down, float), devices.down, devices.shared_down)
    upload = _transfer(np.asarray(bytes_up, float), devices.up, devices.shared_up)
    return ClientTimes.of(devices, download, compute, upload)


def _transfer(sizes, rate, shared_rate):
    """Return the seconds of transfers of `sizes` bytes: float64 [n]."""
    order = np.argsort(sizes)
    ascending = sizes[order]
    # When a client has received its bytes, smaller ones have theirs, and larger ones have received as much as it has.
    larger = np.arange(len(sizes))[::-1]
    seconds = np.empty_like(sizes)
    seconds[order] = (np.cumsum(ascending) + larger * ascending) / shared_rate
    return np.maximum(seconds, sizes / rate)
