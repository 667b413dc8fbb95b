"""Selections: the clients that start in a round.

`choose(pool, count, rng, *, options) -> ids`: int [1 to count] without repetitions, of clients that are able to
train; or a `Choice`. It uses NumPy only, and is a pure function of its arguments. `pool` is a `ClientPool`, `count` at
most the number of able clients, `rng` a NumPy generator for this round.

A module may define constants, which cost time only where they are used:

- `READS_HISTORY = True`: `pool.history` has the last result of each client. Rounds are then planned one by one.
- `READS_TIME = True`: `pool.device_seconds` is the device time; synchronous rounds are then planned one by one.
- `READS_LOSSES = True`: `pool.losses_of` evaluates the current model on clients. Rounds are then planned one by one.
- `SAMPLING = "fixed"`, `"poisson"` or `"cyclic"`: the sampling that the accountant of `privacy` assumes. fixed: `count`
  clients without replacement; poisson: each able client with the same probability, independently, so [0 to able] ids;
  cyclic: every client once, `count` in each round, and then again in the same order.
- `MEMORY = {name: "run" or "clients"}`: a float64 number or [registered] that each choice returns for the next round in
  `Choice.memory`, zeros before the first one; only with `READS_HISTORY`.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class ClientPool:
    """The clients of a round to choose from. A function takes and returns an array with one entry per client.

    Attributes:
        able: Number of clients if all of them may train, else the ids of those that may, ascending.
        round: Number of finished rounds.
        seconds_of: Expected seconds of clients for the round, float64; zeros without a fleet.
        device_seconds: Device time since the start of the run; 0 unless one of `READS_TIME`, `READS_HISTORY`.
        available_at: `(ids, seconds) -> bool`, True for clients that are available at a device time; all without a
            fleet.
        losses_of: Mean loss of the current model on the examples of clients, float64; see `READS_LOSSES`.
        history: By name, float64 [registered]: "squared_loss" (mean over the local steps) and "seconds" of a client in
            the last round in which it returned, "round" (that round, counted from 1), and "count" of such rounds; zeros
            before the first one.
        memory: `Choice.memory` of the last round.
    """

    able: int | np.ndarray
    round: int
    examples_of: Callable[[np.ndarray], np.ndarray]
    seconds_of: Callable[[np.ndarray], np.ndarray]
    device_seconds: float
    available_at: Callable[[np.ndarray, float], np.ndarray]
    losses_of: Callable[[np.ndarray], np.ndarray]
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> np.ndarray:
        """Ids of the able clients, ascending: int [able]."""
        return np.arange(self.able) if isinstance(self.able, int) else self.able


@dataclass(frozen=True)
class Choice:
    """The chosen clients and what the choice leaves behind.

    Attributes:
        ids: int [1 to count].
        evaluated: Ids of the clients that downloaded the model to report their loss.
        memory: Values of `MEMORY` for the next round.
        waited: Device time, in seconds, from the end of the last round to the start of this one.
        energy: Joules of the devices during this time.
    """

    ids: np.ndarray
    evaluated: np.ndarray = field(default_factory=functools.partial(np.zeros, 0, np.int32))
    memory: Mapping[str, Any] = field(default_factory=dict)
    waited: float = 0.0
    energy: float = 0.0
