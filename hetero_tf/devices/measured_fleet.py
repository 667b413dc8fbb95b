"""The fleet of a run with real devices: a device class for each level, from the times that its devices report."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import yaml

from hetero_tf.devices.fleet_file import round_digits

HEADER = """# Measured by `flower server` until {date}: {devices} devices in {rounds} rounds. Each class has the medians
# of the devices of a level. A step takes its time whatever its operations, so the file describes this recipe;
# `measure-device` separates the two. Rates include the cost of Flower's protocol. Add memory and watts yourself.
"""
# Bounds of measured values, since a device may report anything.
SECONDS, MBIT, MAX_SPREAD = (1e-9, 1e6), (1e-6, 1e6), 10.0
RATES = {"down_mbit": "download", "up_mbit": "upload"}


@dataclass
class _DeviceTotals:
    """Totals of one device: its local steps and their seconds, and its newest totals of transfers."""

    level: str
    steps: int = 0
    seconds: float = 0.0
    transfers: dict[str, float] = field(default_factory=dict)

    @property
    def pace(self):
        """Seconds of a step."""
        return float(np.clip(self.seconds / self.steps, *SECONDS))

    def rate(self, way):
        """Mbit/s of its link; None if it did not report them."""
        size, seconds = (self.transfers.get(f"{way}_{unit}", 0) for unit in ("bytes", "seconds"))
        return float(np.clip(size * 8e-6 / seconds, *MBIT)) if size and seconds else None


@dataclass
class MeasuredFleet:
    """Totals of the devices of a run, since its server started."""

    _devices: dict[int, _DeviceTotals] = field(default_factory=dict)
    _requested: dict[str, int] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    _rounds: int = 0

    def add_round(
        self,
        levels: Mapping[int, str],
        responded: Iterable[int],
        steps: Mapping[int, int],
        times: Mapping[int, Mapping[str, float]],
    ) -> None:
        """Add a round.

        Args:
            levels: Level of each requested device, by client.
            responded: Clients that responded.
            steps: Local steps by client.
            times: Times of the merged results by client, see `messages.parse_times`.
        """
        self._rounds += 1
        for client, level in levels.items():
            self._requested[level] = self._requested.get(level, 0) + 1
            self._dropped[level] = self._dropped.get(level, 0) + (client not in responded)
        for client, reported in times.items():
            if "train_seconds" in reported:
                device = self._devices.setdefault(client, _DeviceTotals(levels[client]))
                device.steps += steps[client]
                device.seconds += reported["train_seconds"]
                device.transfers = {name: value for name, value in reported.items() if name != "train_seconds"}

    def to_yaml(self) -> str | None:
        """Return the text of a fleet file; None if no device reported its times."""
        by_level: dict[str, list[_DeviceTotals]] = {}
        for device in self._devices.values():
            if device.steps:
                by_level.setdefault(device.level, []).append(device)
        if not by_level:
            return None
        spread = _spread([[device.pace for device in devices] for devices in by_level.values()])
        head = HEADER.format(date=datetime.date.today(), devices=sum(map(len, by_level.values())), rounds=self._rounds)
        fleet = {
            "assign": "levels",
            "spread": round_digits(min(spread, MAX_SPREAD)),
            "devices": {level: self._class(level, devices) for level, devices in sorted(by_level.items())},
        }
        return head + yaml.safe_dump(fleet, sort_keys=False)

    def _class(self, level, devices):
        """The device class of a level."""
        rates = {key: [rate for each in devices if (rate := each.rate(way))] for key, way in RATES.items()}
        return {
            "share": len(devices),
            "seconds_per_step": round_digits(float(np.median([each.pace for each in devices]))),
            **{name: round_digits(float(np.median(values))) for name, values in rates.items() if values},
            "dropout": round_digits(self._dropped[level] / self._requested[level]),
        }


def _spread(paces: Sequence[Sequence[float]]) -> float:
    """Return the pooled standard deviation of the logarithm within groups; 0 without a group of two."""
    freedom = sum(len(group) - 1 for group in paces)
    deviations = np.concatenate([np.log(group) - np.mean(np.log(group)) for group in paces])
    return float(np.sqrt(np.square(deviations).sum() / freedom)) if freedom else 0.0
