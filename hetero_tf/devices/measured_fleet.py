"""Measured devices, as the device classes of a fleet: this device on exported files, and the devices of a run.

A step takes `seconds_per_step + operations / speed`. Two batch sizes of one file separate the two, since a step's
constant part (calls of operations, the update of the weights) does not depend on the number of examples. Operations are
those that the simulation counts (`train_flops` of the export). The speed holds for models of about this width: narrow
ones use the arithmetic units of a processor less.
"""

import datetime
import math
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from hetero_tf.base import files
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import MIB
from hetero_tf.devices.on_device import LiteRTTrainer

# Untimed steps of each batch size: the first one allocates the memory of its signature.
WARM_UP = 3
# Timed steps of each batch size: as many as the time allows, between these bounds.
MIN_STEPS, MAX_STEPS, MAX_SECONDS = 5, 50, 20.0


@dataclass(frozen=True)
class StepTime:
    """Median time of the steps with one batch size.

    Attributes:
        examples: Examples of a batch.
        flops: Operations of a step.
        seconds: Median wall time of a step.
    """

    level: str
    examples: int
    flops: float
    seconds: float


@dataclass(frozen=True)
class DeviceSpeed:
    """Training speed of a device.

    Attributes:
        seconds_per_step: Constant part of a step.
        seconds_per_gflop: Further seconds for each 1e9 operations.
        steps: The times that it is fitted to.
    """

    seconds_per_step: float
    seconds_per_gflop: float
    steps: tuple[StepTime, ...]

    def predict(self, steps: int, flops: float) -> float:
        """Return the seconds of some steps with some operations in total."""
        return steps * self.seconds_per_step + flops / 1e9 * self.seconds_per_gflop

    @property
    def error(self) -> float:
        """Largest difference between the predicted and the measured time of a step, as a share of the latter."""
        return max(abs(self.predict(1, step.flops) / step.seconds - 1) for step in self.steps)


def measure_steps(trainers: Sequence[LiteRTTrainer]) -> tuple[StepTime, ...]:
    """Time local steps on random examples at every batch size of some files; their weights do not change.

    Sizes take turns, so that other load on the device affects all of them.
    """
    rng = np.random.default_rng(0)
    cases: list[tuple[LiteRTTrainer, dict, list[float]]] = []
    for trainer in trainers:
        sizes = trainer.settings["batches"]
        longest = max(positions for _, positions in sizes.values())
        # The simulation counts a shorter segment of text as a full one.
        names = [name for name, (_, positions) in sizes.items() if positions == longest]
        cases += [(trainer, trainer.random_batch(name, rng), []) for name in names]
    start = time.perf_counter()
    for turn in range(WARM_UP + MAX_STEPS):
        if turn >= WARM_UP + MIN_STEPS and time.perf_counter() - start > MAX_SECONDS:
            break
        for trainer, batch, seconds in cases:
            report = trainer.train([batch], 0.0, np.ones(trainer.settings["classes"], bool), rng)
            seconds += [report.seconds] * (turn >= WARM_UP)
    return tuple(
        StepTime(trainer.level, size, size * trainer.settings["train_flops"], float(np.median(seconds)))
        for trainer, batch, seconds in cases
        for size in [len(batch["label"])]
    )


def fit_speed(steps: Sequence[StepTime]) -> DeviceSpeed:
    """Return the speed with the smallest squared relative errors; neither part is negative."""
    seconds, gflops = (np.asarray(values) for values in zip(*((step.seconds, step.flops / 1e9) for step in steps)))
    columns = np.stack([1 / seconds, gflops / seconds], axis=1)
    parts = np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0]
    if (parts < 0).any():
        (column,) = np.flatnonzero(parts >= 0)[:1]
        parts = np.zeros(2)
        parts[column] = columns[:, column].sum() / np.square(columns[:, column]).sum()
    return DeviceSpeed(float(parts[0]), float(parts[1]), tuple(steps))


def peak_mebibytes() -> float:
    """Return the peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    # On Linux `getrusage` includes the peak of the program that started this one.
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    # macOS reports bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


# Significant digits of a measured number.
DIGITS = 4


def device_of(speed: DeviceSpeed, mebibytes: float) -> dict[str, float | str]:
    """Return the keys of a device class that a measurement determines, see `recipe.schema.Device`.

    Args:
        speed: Its training speed; a part that is 0 gives no key.
    """
    gflops = 1 / speed.seconds_per_gflop if speed.seconds_per_gflop else None
    times = {"seconds_per_step": speed.seconds_per_step or None, "gflops": gflops}
    device = {name: round_digits(value) for name, value in times.items() if value is not None}
    return {**device, "memory": f"{math.ceil(mebibytes)} MiB"}


def round_digits(value: float) -> float:
    """Return a number with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


def describe_steps(speed: DeviceSpeed, threads: int) -> list[str]:
    """Return lines with the measured steps of a device, and how well the device class describes them."""
    times: dict[str, list[str]] = {}
    for step in speed.steps:
        times.setdefault(step.level, []).append(
            f"{round_digits(1000 * step.seconds):g} ms for {step.examples} examples"
        )
    measured = f"Measured {datetime.date.today()} with --threads {threads}; differs from these steps by at most"
    return [f"{measured} {speed.error:.0%}.", *(f"Level {level}: {', '.join(each)}" for level, each in times.items())]


def dump_class(name: str, device: Mapping[str, float | str], notes: Sequence[str]) -> str:
    """Return the lines of a device class, indented, after comments."""
    lines = yaml.safe_dump({name: dict(device)}, sort_keys=False, allow_unicode=True).splitlines()
    return "".join(f"  {line}\n" for line in (*(f"# {note}" for note in notes), *lines))


def add_class(path: Path, name: str, device: Mapping[str, float | str], notes: Sequence[str]) -> None:
    """Add a device class to the end of a fleet file, or create the file.

    Raises:
        InputError: The file has a class of this name, or does not end with its classes, indented by two spaces.
    """
    text = path.read_text("utf-8").rstrip("\n") + "\n" if path.exists() else "devices:\n"
    added = text + dump_class(name, device, notes)
    try:
        before, after = (yaml.safe_load(each)["devices"] or {} for each in (text, added))
        is_added = name not in before and after == {**before, name: dict(device)}
    except (yaml.YAMLError, KeyError, TypeError):
        is_added = False
    if not is_added:
        raise InputError(
            f"--append {path}: must be a fleet file without a class {name!r}, whose last key is `devices`, "
            "with classes indented by two spaces"
        )
    files.write_atomic(path, added.encode())


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
