"""Measured devices, as the device classes of a fleet: this device on an exported file, and the devices of a run.

A step takes `seconds_per_step + operations / speed`. Two batch sizes of one file separate the two, since a step's
constant part (calls of operations, the update of the weights) does not depend on the number of examples. Operations are
those that the simulation counts (`train_flops` of the export). The speed holds for models of about this width: narrow
ones use the arithmetic units of a processor less.
"""

import datetime
import math
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from hetero_tf.base.formatting import MIB
from hetero_tf.devices.on_device import LiteRTTrainer

# Untimed steps of each batch size: the first one allocates the memory of its signature.
WARM_UP = 3
# Timed steps of each batch size: as many as the time allows, between these bounds.
MIN_STEPS, MAX_STEPS, MAX_SECONDS = 5, 50, 20.0
# Significant digits of a measured number.
DIGITS = 4


def measure_steps(trainer: LiteRTTrainer) -> dict[int, float]:
    """Return the median seconds of a step with the largest and the smallest batch of a file, by number of examples.

    The steps train on random examples and do not change the weights. The sizes take turns, so that other load on the
    device affects both.
    """
    rng, sizes = np.random.default_rng(0), trainer.settings["batches"]
    # The simulation counts a shorter segment of text as a full one.
    longest = max(positions for _, positions in sizes.values())
    names = {examples: name for name, (examples, positions) in sizes.items() if positions == longest}
    batches = {size: trainer.random_batch(names[size], rng) for size in (max(names), min(names))}
    seconds: dict[int, list[float]] = {size: [] for size in batches}
    start = time.perf_counter()
    for turn in range(WARM_UP + MAX_STEPS):
        if turn >= WARM_UP + MIN_STEPS and time.perf_counter() - start > MAX_SECONDS:
            break
        for size, batch in batches.items():
            report = trainer.train([batch], 0.0, np.ones(trainer.settings["classes"], bool), rng)
            seconds[size] += [report.seconds] * (turn >= WARM_UP)
    return {size: float(np.median(values)) for size, values in seconds.items()}


def device_of(steps: Mapping[int, float], flops: float, mebibytes: float) -> dict[str, float | str]:
    """Return the keys of a device class that a measurement determines, see `recipe.schema.Device`.

    Args:
        steps: Seconds of a step by number of examples, of two sizes, see `measure_steps`.
        flops: Operations of a step for one example.
        mebibytes: Memory of the device.
    """
    operations, seconds = 1e-9 * flops * np.array(list(steps)), np.array(list(steps.values()))
    constant, per_gflop = np.linalg.solve(np.stack([np.ones(2), operations], axis=1), seconds)
    # The noise of a measurement can make one part negative; the other one is then the whole time.
    if constant <= 0:
        times = {"gflops": float(np.mean(operations / seconds))}
    elif per_gflop <= 0:
        times = {"seconds_per_step": float(np.mean(seconds))}
    else:
        times = {"seconds_per_step": float(constant), "gflops": float(1 / per_gflop)}
    return {**{name: round_digits(value) for name, value in times.items()}, "memory": f"{math.ceil(mebibytes)} MiB"}


def peak_mebibytes() -> float:
    """Return the peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    # On Linux `getrusage` includes the peak of the program that started this one.
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    # macOS reports bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB


def round_digits(value: float) -> float:
    """Return a number with `DIGITS` significant digits."""
    return float(f"{value:.{DIGITS}g}")


HEADER = """# Measured by `flower server` until {date}: {devices} devices in {rounds} rounds. Each class has the median
# of the devices of a level. A step takes its time whatever its operations, so the file describes this recipe;
# `measure-device` separates the two. Add the rates of the link, memory and watts yourself.
"""
# Bounds of the seconds of a step, since a device may report anything.
SECONDS = (1e-9, 1e6)


@dataclass
class _DeviceTotals:
    """Totals of one device: its local steps and their seconds."""

    level: str
    steps: int = 0
    seconds: float = 0.0


@dataclass
class MeasuredFleet:
    """Totals of the devices of a run, since its server started."""

    _devices: dict[int, _DeviceTotals] = field(default_factory=dict)
    _rounds: int = 0

    def add_round(self, levels: Mapping[int, str], steps: Mapping[int, int], seconds: Mapping[int, float]) -> None:
        """Add a round.

        Args:
            levels: Level of each device, by client.
            steps: Local steps of each device, by client.
            seconds: Seconds of these steps, by client; without devices that did not report them.
        """
        self._rounds += 1
        for client, value in seconds.items():
            device = self._devices.setdefault(client, _DeviceTotals(levels[client]))
            device.steps += steps[client]
            device.seconds += value

    def to_yaml(self) -> str | None:
        """Return the text of a fleet file; None if no device reported its times."""
        by_level: dict[str, list[float]] = {}
        for device in self._devices.values():
            if device.steps:
                pace = float(np.clip(device.seconds / device.steps, *SECONDS))
                by_level.setdefault(device.level, []).append(pace)
        if not by_level:
            return None
        head = HEADER.format(date=datetime.date.today(), devices=sum(map(len, by_level.values())), rounds=self._rounds)
        devices = {
            level: {"share": len(paces), "seconds_per_step": round_digits(float(np.median(paces)))}
            for level, paces in sorted(by_level.items())
        }
        return head + yaml.safe_dump({"assign": "levels", "devices": devices}, sort_keys=False)
