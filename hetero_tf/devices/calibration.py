"""Measures how fast this device trains exported files, as a device class of a fleet.

A step takes `seconds_per_step + operations / speed`. Two batch sizes of one file separate the two, since a step's
constant part (calls of operations, the update of the weights) does not depend on the number of examples. Operations are
those that the simulation counts (`train_flops` of the export). The speed holds for models of about this width: narrow
ones use the arithmetic units of a processor less.
"""

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.units import MIB
from hetero_tf.devices.on_device import Client

# Untimed steps of each batch size: the first one allocates the memory of its signature.
WARM_UP = 3
# Timed steps of each batch size: as many as the time allows, between these bounds.
MIN_STEPS, MAX_STEPS, MAX_SECONDS = 5, 50, 20.0


@dataclass(frozen=True)
class StepTime:
    """Median time of the steps with one batch size.

    Attributes:
        level: Name of the file's level.
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


def measure_steps(clients: Sequence[Client]) -> tuple[StepTime, ...]:
    """Time local steps on random examples at every batch size of some files; their weights do not change.

    Sizes take turns, so that other load on the device affects all of them.
    """
    rng = np.random.default_rng(0)
    cases: list[tuple[Client, dict, list[float]]] = []
    for client in clients:
        longest = max(positions for _, positions in client.settings["batches"].values())
        # The simulation counts a shorter segment of text as a full one.
        cases += [
            (client, client.random_batch(name, rng), [])
            for name, (_, positions) in client.settings["batches"].items()
            if positions == longest
        ]
    start = time.perf_counter()
    for turn in range(WARM_UP + MAX_STEPS):
        if turn >= WARM_UP + MIN_STEPS and time.perf_counter() - start > MAX_SECONDS:
            break
        for client, batch, seconds in cases:
            report = client.train([batch], 0.0, np.ones(client.settings["classes"], bool), rng)
            seconds += [report.seconds] * (turn >= WARM_UP)
    return tuple(
        StepTime(
            client.level,
            len(batch["label"]),
            len(batch["label"]) * client.settings["train_flops"],
            float(np.median(seconds)),
        )
        for client, batch, seconds in cases
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
