"""The device of each client."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.recipe.schema import Device, Fleet

# Bytes per second of 1 Mbit/s.
MBIT = 1e6 / 8
# Lower bound of a half-normal time, in standard deviations.
SHORTEST = 1e-6


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
        fleet: The section of the recipe.
        seed: The run's seed.
        ids: int [n], the clients.
        clients: Number of registered clients, which `assign: order` divides.
        levels: [n], the name of each client's level, for `assign: levels`.
        round: The round, whose jitter changes the speeds; None for the speeds without jitter.

    Returns:
        `Devices`; each is a pure function of (seed, client), its level and the round.
    """
    ids = np.asarray(ids)
    kind = _kinds(fleet, seed, ids, clients, levels)
    columns = {name: values[kind] for name, values in _table(fleet).items()}
    pace = _pace(fleet, fleet.spread, _normal(seed, "device speed", 0, ids)) if fleet.spread else 1.0
    if fleet.jitter and round is not None:
        pace = pace * _pace(fleet, fleet.jitter, _normal(seed, "device jitter", round, ids))
    columns["speed"] = columns["speed"] * pace
    columns["seconds_per_step"] = columns["seconds_per_step"] / pace
    shared = {f"shared_{way}": _rate(getattr(fleet, f"shared_{way}_mbit")) for way in ("down", "up")}
    return Devices(kind.astype(np.int32), **columns, **shared)


def _kinds(fleet, seed, ids, clients, levels):
    """Return the index of the device class of each client: int [n]."""
    if fleet.assign == "levels":
        index = {name: number for number, name in enumerate(fleet.devices)}
        return np.asarray([index[name] for name in levels], np.int64)
    # Position of the client among all of them, in [0, 1).
    position = (ids + 0.5) / clients if fleet.assign == "order" else seeds.uniform(seed, "device", ids=ids)
    shares = np.cumsum([device.share for device in fleet.devices.values()])
    return np.searchsorted(shares[:-1] / shares[-1], position, side="right")


def _table(fleet):
    """Return the columns of `Devices` that a class of devices determines: {name: float64 [classes]}."""
    rows = [_row(device) for device in fleet.devices.values()]
    return {field.name: np.asarray([row[field.name] for row in rows], float) for field in fields(Devices)[1:-2]}


def _row(device: Device):
    return {
        "speed": math.inf if device.gflops is None else device.gflops * 1e9,
        "memory": device.memory_bytes,
        "down": _rate(device.down_mbit),
        "up": _rate(device.up_mbit),
        **{name: getattr(device, name) for name in ("seconds_per_step", "train_watts", "radio_watts", "dropout")},
    }


def _rate(mbit):
    return math.inf if mbit is None else mbit * MBIT


def _pace(fleet, deviation, normal):
    """Return the factor of the speed for standard normal numbers: float64 [n]."""
    if fleet.distribution == "half_normal":
        return 1 / (deviation * np.maximum(np.abs(normal), SHORTEST))
    return np.exp(deviation * normal)


def _normal(seed, purpose, round, ids):
    """Return one standard normal number for each id, by the Box-Muller transform."""
    first, second = (seeds.uniform(seed, purpose, round, part, ids=ids) for part in range(2))
    return np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
