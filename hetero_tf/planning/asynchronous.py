"""Rounds of asynchronous policies: the clients that start from each version of the global model, and their times.

Round v of such a run trains the clients that start from version v, see `events`. Everything is a pure function of (seed,
round), since durations do not depend on values.
"""

import dataclasses
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.fleets.clock import ClientTimes
from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.partitions.partition import Partition
from hetero_tf.planning import timing
from hetero_tf.planning.events import DROPPED, EventQueue, Start, Version
from hetero_tf.planning.level_assignment import assign_levels
from hetero_tf.planning.plan import Division, able_clients, client_stage_examples, draw_cohort
from hetero_tf.planning.timing import RoundClock, RoundTiming


@dataclass(frozen=True, kw_only=True)
class VersionTiming(RoundTiming):
    """Device time of the clients that start from one version of the global model.

    Attributes:
        started: float64 [n], seconds from the start of the round to those of the clients.
        staleness: int32 [n], of the clients' results; see `events.Version`.
        arrived: Staleness of each result that arrives in the round and is merged.
        stale: Number of results that arrive in the round and are discarded.
        first_card: Number of clients that have started in earlier rounds.
    """

    started: np.ndarray
    staleness: np.ndarray
    arrived: tuple[int, ...]
    stale: int
    first_card: int

    def metrics(self) -> dict[str, int | float | None]:
        """Return metrics by name, see `RoundTiming.metrics`; "staleness" is the mean over merged results."""
        names = ("dropped", "round_seconds", "client_seconds", "round_energy")
        metrics = {name: value for name, value in super().metrics().items() if name in names}
        return metrics | {"stale": self.stale, "staleness": float(np.mean(self.arrived)) if self.arrived else None}


class ClientStarts:
    """Starts a client for each one that has returned, so a fixed number of clients run at any time.

    A client that is running, or has started from the current version before, does not start: it would train the same
    steps again. If there are too few others, a start waits for an arrival or the next version.

    Args:
        count: Number of running clients.
        choose: `(count, draw) -> ids`, distinct clients in the order of their starts; `draw` numbers the calls.
        durations: `(version, ids) -> (seconds, dropped)` of clients that start from a version, each [n].
    """

    def __init__(self, count: int, choose: Callable, durations: Callable):
        self._choose, self._durations = choose, durations
        self._free, self._draws, self._waits = deque([0.0] * count), 0, False

    def next_time(self) -> float | None:
        return self._free[0] if self._free and not self._waits else None

    def start(self, time: float, version: int, busy: Collection[int]) -> list[Start]:
        wanted = sum(free <= time for free in self._free)
        ids = [client for client in self._choose(wanted + len(busy), self._draws) if client not in busy][:wanted]
        self._draws += 1
        for _ in ids:
            self._free.popleft()
        self._waits = len(ids) < wanted
        seconds, dropped = self._durations(version, np.asarray(ids, np.int32))
        return [Start(*each) for each in zip(ids, seconds.tolist(), dropped.tolist())]

    def arrive(self, time: float) -> None:
        self._resume(time)
        self._free.append(time)

    def end_version(self, time: float) -> None:
        self._resume(time)

    def _resume(self, time):
        """Let the starts that waited begin at this time."""
        if self._waits:
            self._free, self._waits = deque([time] * len(self._free)), False


class VersionPlanner:
    """The event queue of a recipe with an asynchronous policy.

    Args:
        clock: The clock of the recipe.
        policy: Its policy.
        partition: The examples of each client.
        starts: First positions, from the `Input` of the recipe.
        division: The stages of its levels.
    """

    def __init__(
        self, clock: RoundClock, policy: AsynchronousPolicy, partition: Partition, starts: tuple, division: Division
    ):
        self._clock, self._policy, self._sizes = clock, policy, partition.train.sizes
        self._starts, self._division = starts, division
        recipe = clock.recipe
        self._able = able_clients(recipe.levels, clock.clients, recipe.seed, 0)
        self._queue = EventQueue(ClientStarts(recipe.round.clients, self._choose, self._durations), policy)
        # Number of clients that have started before each version.
        self._started = [0]

    def timing(self, number: int) -> VersionTiming:
        """Return the clients that start from a version, in order, with their times and the staleness of each result."""
        version = self._queue.version(number)
        while len(self._started) <= number:
            self._started.append(self._started[-1] + len(self._queue.version(len(self._started) - 1).clients))
        ids, staleness = np.asarray(version.clients, np.int32), np.asarray(version.staleness, np.int32)
        levels, steps, times = self._work(number, ids)
        dropped, stale = staleness == DROPPED, staleness > self._policy.max_staleness
        statuses = np.select([dropped, stale], [timing.DROPPED, timing.STALE], timing.RETURNED)
        lost = [np.where(dropped, 0.0, seconds) for seconds in (times.compute, times.upload)]
        arrivals = [number - start for start, _, _ in version.arrivals]
        return VersionTiming(
            clients=ids,
            kinds=self._clock.devices(number, ids, levels).kind,
            levels=levels,
            steps=np.where(dropped | stale, 0, steps).astype(np.int32),
            statuses=tuple(statuses.tolist()),
            times=dataclasses.replace(times, compute=lost[0], upload=lost[1]),
            seconds=version.ended - version.began,
            started=np.asarray(version.started) - version.began,
            staleness=staleness,
            arrived=tuple(each for each in arrivals if each <= self._policy.max_staleness),
            stale=sum(each > self._policy.max_staleness for each in arrivals),
            first_card=self._started[number],
        )

    def _choose(self, count, draw):
        able = self._able if isinstance(self._able, int) else len(self._able)
        return draw_cohort(self._able, min(count, able), self._clock.recipe.seed, draw).tolist()

    def _durations(self, version, ids):
        levels, _, times = self._work(version, ids)
        dropout = self._clock.devices(version, ids, levels).dropout
        return times.total, seeds.uniform(self._clock.recipe.seed, "client dropout", version, ids=ids) < dropout

    def _work(self, version, ids):
        """Return the levels, the local steps and the times of clients that start from a version."""
        recipe = self._clock.recipe
        levels = assign_levels(recipe.levels, self._clock.clients, recipe.seed, version, ids)
        steps, examples = client_stage_examples(
            recipe, self._sizes[ids], self._starts, self._division, version, ids, levels
        )
        return levels, steps, self._clock.times(version, ids, levels, steps, examples)
