"""Rounds of asynchronous policies: the clients that start from each version of the global model, and their times.

Round v of such a run trains the clients that start from version v, see `ModelVersion`. Durations do not depend on
values, so everything is a pure function of (seed, round).
"""

import functools
import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hetero_tf.data.partitions.partition import Partition
from hetero_tf.methods.policies import AsynchronousPolicy, round_policy
from hetero_tf.methods.selections import ClientPool
from hetero_tf.planning import timing
from hetero_tf.planning.fleets.devices import ClientTimes
from hetero_tf.planning.plan import Batching, Plan, arrange, assign_levels, device_work
from hetero_tf.planning.selection import select_cohort
from hetero_tf.planning.timing import RoundClock, RoundTiming

# Staleness of a client that never returns.
DROPPED = -1


class ClientStart(NamedTuple):
    """The start of a client.

    Attributes:
        duration: Seconds from its start to its arrival, or until it drops out.
        dropped: True if it returns nothing; the server notices it as soon as the client drops out.
    """

    client: int
    duration: float
    dropped: bool


class ClientStarts:
    """Starts a client for each one that has returned, so a fixed number of clients run at any time.

    A client that is running, or has started from the current version before, does not start: it would train the same
    steps again. If there are too few others, a start waits for an arrival or the next version.

    Args:
        count: Number of running clients.
        choose: `(count, draw, version, time) -> (ids, wait)`: at most that many distinct clients in the order of their
            starts, or the seconds to wait for some; `draw` numbers the calls.
        durations: `(version, ids) -> (seconds, dropped)` of clients that start from a version, each [n].
    """

    def __init__(self, count: int, choose: Callable, durations: Callable):
        self._choose, self._durations = choose, durations
        self._free, self._draws, self._waits = deque([0.0] * count), 0, False

    def next_time(self) -> float | None:
        """Return the time of the next starts in seconds; None if they wait for an arrival or a new version."""
        return self._free[0] if self._free and not self._waits else None

    def start(self, time: float, version: int, busy: Collection[int]) -> list[ClientStart]:
        """Return the clients that start at this time, which is that of `next_time`.

        Args:
            version: The version that they download.
            busy: Clients that are running, or that have started from this version before.
        """
        wanted = sum(free <= time for free in self._free)
        # Few draws are of busy clients; if they are too many, all of these may be among the next ones.
        for count in (2 * wanted + 2, wanted + len(busy)) if busy else (wanted,):
            chosen, wait = self._choose(count, self._draws, version, time)
            ids = [client for client in chosen if client not in busy][:wanted]
            if len(ids) == wanted or wait:
                break
        self._draws += 1
        if wait:
            self._free = deque(max(free, time + wait) for free in self._free)
            return []
        for _ in ids:
            self._free.popleft()
        self._waits = len(ids) < wanted
        seconds, dropped = self._durations(version, np.asarray(ids, np.int32))
        return [ClientStart(*each) for each in zip(ids, seconds.tolist(), dropped.tolist())]

    def arrive(self, time: float) -> None:
        """Note that a client has arrived or dropped out at this time."""
        self._resume(time)
        self._free.append(time)

    def end_version(self, time: float) -> None:
        """Note that a new version exists from this time on."""
        self._resume(time)

    def _resume(self, time):
        """Let the starts that waited begin at this time."""
        if self._waits:
            self._free, self._waits = deque([time] * len(self._free)), False


@dataclass
class ModelVersion:
    """One version of the global model.

    Attributes:
        began, ended: Seconds; `ended` is None until the version ends.
        clients: Those that start from it, in order.
        started, arrived: Seconds of their starts and arrivals.
        staleness: Versions that ended between start and arrival of their results; `DROPPED` if a client drops out,
            None while it runs.
        first_start: Number of clients that started from earlier versions.
        arrivals: (version of the start, position among its clients, seconds) of each arrival before the end.
    """

    began: float
    first_start: int = 0
    ended: float | None = None
    clients: list[int] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    staleness: list[int | None] = field(default_factory=list)
    arrivals: list[tuple[int, int, float]] = field(default_factory=list)


class EventQueue:
    """Simulates starts and arrivals as far as they are needed; every version is computed once.

    Args:
        starts: The source of starts.
    """

    def __init__(self, starts: ClientStarts, policy: AsynchronousPolicy):
        self._starts, self._policy, self._lock = starts, policy, threading.Lock()
        self._versions, self._now = [ModelVersion(0.0)], 0.0
        # Running clients by (seconds of their arrival, order of the starts).
        self._running: list[tuple[float, int, int, int, bool]] = []
        # Running clients, and those that have started from the current version.
        self._busy: set[int] = set()
        self._order, self._buffered, self._arrivals = itertools.count(), 0, 0

    def version(self, number: int) -> ModelVersion:
        """Return a version whose end and whose clients' staleness are known.

        A client that is still running when its result has become too old gets a staleness above the policy's limit.
        """
        with self._lock:
            while not self._is_resolved(number):
                self._advance()
            return self._versions[number]

    def _is_resolved(self, number):
        current = len(self._versions) - 1
        if number >= current:
            return False
        is_too_old = current - number > self._policy.max_staleness
        staleness = self._versions[number].staleness
        if is_too_old:
            staleness[:] = [current - number if each is None else each for each in staleness]
        return None not in staleness

    def _advance(self):
        """Simulate the next event."""
        start = self._starts.next_time()
        if self._running and (start is None or self._running[0][0] <= start):
            self._arrive(*heapq.heappop(self._running))
        elif start is not None:
            self._start(start)
        else:
            # All clients that can start from this version have returned: the server uses what it has.
            self._end_version(self._now)

    def _start(self, time):
        self._now = time
        number = len(self._versions) - 1
        version = self._versions[number]
        for each in self._starts.start(time, number, self._busy):
            entry = (time + each.duration, next(self._order), number, len(version.clients), each.dropped)
            heapq.heappush(self._running, entry)
            self._busy.add(each.client)
            version.clients.append(each.client)
            version.started.append(time)
            version.arrived.append(entry[0])
            version.staleness.append(None)

    def _arrive(self, time, _, number, position, dropped):
        self._now, current, policy = time, len(self._versions) - 1, self._policy
        self._starts.arrive(time)
        if dropped:
            self._versions[number].staleness[position] = DROPPED
            return
        self._versions[number].staleness[position] = current - number
        self._versions[current].arrivals.append((number, position, time))
        self._arrivals += 1
        self._buffered += current - number <= policy.max_staleness
        is_flushed = policy.flush is not None and self._arrivals % policy.flush == 0 and self._buffered > 0
        if self._buffered == policy.buffer or is_flushed:
            self._end_version(time)

    def _end_version(self, time):
        self._buffered = 0
        self._versions[-1].ended = time
        last = self._versions[-1]
        self._versions.append(ModelVersion(time, last.first_start + len(last.clients)))
        self._busy = {self._versions[number].clients[position] for _, _, number, position, _ in self._running}
        self._starts.end_version(time)


@dataclass(frozen=True, kw_only=True)
class VersionTiming(RoundTiming):
    """Device time of the clients that start from one version of the global model.

    Attributes:
        started: float64 [n], seconds from the start of the round to those of the clients.
        staleness: int32 [n], of the clients' results; see `ModelVersion`.
        arrived: Staleness of each result that arrives in the round and is merged.
        stale: Number of results that arrive in the round and are discarded.
        first_card: Number of clients that have started in earlier rounds.
    """

    started: np.ndarray
    staleness: np.ndarray
    arrived: tuple[int, ...]
    stale: int
    first_card: int

    @property
    def start_seconds(self) -> np.ndarray:
        return self.started

    def metrics(self) -> dict[str, int | float | None]:
        """Return metrics by name, see `RoundTiming.metrics`; "staleness" is the mean over merged results."""
        names = ("dropped", "round_seconds", "client_seconds", "round_energy")
        metrics = {name: value for name, value in super().metrics().items() if name in names}
        return metrics | {"stale": self.stale, "staleness": float(np.mean(self.arrived)) if self.arrived else None}


@dataclass(frozen=True, eq=False)
class VersionPlanner:
    """Plans the rounds of a recipe with an asynchronous policy.

    Attributes:
        pool_at: `(draw, version, time) -> ClientPool`, the clients that may start.
    """

    clock: RoundClock
    partition: Partition
    batching: Batching
    pool_at: Callable[[int, int, float], ClientPool]

    @functools.cached_property
    def queue(self) -> EventQueue:
        """The event queue of the run."""
        clients = self.clock.recipe.round.clients
        return EventQueue(ClientStarts(clients, self._choose, self._durations), self.policy)

    @functools.cached_property
    def policy(self) -> AsynchronousPolicy:
        """The policy of the recipe."""
        policy = round_policy(self.clock.recipe.round.policy)
        assert isinstance(policy, AsynchronousPolicy)
        return policy

    def timing(self, number: int) -> VersionTiming:
        """Return the clients that start from a version, in order, with their times and the staleness of each result."""
        version = self.queue.version(number)
        ids, staleness = np.asarray(version.clients, np.int32), np.asarray(version.staleness, np.int32)
        levels, steps, times = self._work(number, ids)
        dropped, stale = staleness == DROPPED, staleness > self.policy.max_staleness
        statuses = np.select([dropped, stale], [timing.DROPPED, timing.STALE], timing.RETURNED)
        # A client drops out after its download.
        devices = self.clock.devices(number, ids, levels)
        compute, upload = (np.where(dropped, 0.0, seconds) for seconds in (times.compute, times.upload))
        arrivals = [number - start for start, _, _ in version.arrivals]
        assert version.ended is not None
        return VersionTiming(
            clients=ids,
            kinds=devices.kind,
            levels=levels,
            steps=np.where(dropped | stale, 0, steps).astype(np.int32),
            statuses=tuple(statuses.tolist()),
            times=ClientTimes.of(devices, times.download, compute, upload),
            seconds=version.ended - version.began,
            started=np.asarray(version.started) - version.began,
            staleness=staleness,
            arrived=tuple(each for each in arrivals if each <= self.policy.max_staleness),
            stale=sum(each > self.policy.max_staleness for each in arrivals),
            first_card=version.first_start,
        )

    def plan(self, number: int) -> Plan:
        """Plan the round of a version."""
        recipe, times = self.clock.recipe, self.timing(number)
        cohort = zip(times.clients.tolist(), times.levels.tolist(), times.steps.tolist())
        train, work_of = self.partition.train, self.batching.work
        work = [work_of(train[client], number, client, level).first(steps) for client, level, steps in cohort]
        delays = np.where(times.steps > 0, times.staleness, 0).astype(np.int32)
        return arrange(recipe, number, times.clients, times.levels, work, times, times.first_card, delays)

    def _choose(self, count, draw, version, time):
        """Choose clients by the selection of the recipe; a draw takes the random numbers of the round of its number."""
        choice = select_cohort(self.clock.recipe, self.pool_at(draw, version, time), count)
        return choice.ids.tolist(), choice.waited

    def _durations(self, version, ids):
        levels, _, times = self._work(version, ids)
        dropped = self.clock.drop_out(version, ids, self.clock.devices(version, ids, levels))
        # As in a synchronous round, a client drops out after its download, and the server notices it then.
        return np.where(dropped, times.download, times.total), dropped

    def _work(self, version, ids):
        """Return the levels, the local steps and the times of clients that start from a version."""
        clock, recipe = self.clock, self.clock.recipe
        levels = assign_levels(recipe.levels, clock.clients, recipe.seed, version, ids)
        sizes, starts = self.partition.train.sizes[ids], len(self.batching.starts)
        steps, examples = device_work(recipe, sizes, starts, self.batching.division, version, ids, levels)
        return levels, steps, clock.times(version, ids, levels, steps, examples)
