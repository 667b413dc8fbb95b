"""The event queue of asynchronous rounds: which clients start from each version of the global model, and when.

Durations do not depend on values, so the whole queue is planned on the host. A version ends with the arrival that fills
the server's buffer; round v of a run trains the clients that start from version v. At equal times arrivals come before
starts, so a client that starts at that moment downloads the new version.
"""

import heapq
import itertools
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from hetero_tf.methods.policies import AsynchronousPolicy

# Staleness of a client that never returns.
DROPPED = -1


class ClientStart(NamedTuple):
    """The start of a client.

    Attributes:
        client: Its id.
        duration: Seconds from its start to its arrival, or until it drops out.
        dropped: True if it returns nothing; the server notices it as soon as the client drops out.
    """

    client: int
    duration: float
    dropped: bool


class Starts(Protocol):
    """The source of starts of an event queue."""

    def next_time(self) -> float | None:
        """Return the time of the next starts in seconds; None if they wait for an arrival or a new version."""

    def start(self, time: float, version: int, busy: Collection[int]) -> Sequence[ClientStart]:
        """Return the clients that start at this time, which is that of `next_time`.

        Args:
            version: The version that they download.
            busy: Clients that are running, or that have started from this version before.
        """

    def arrive(self, time: float) -> None:
        """Note that a client has arrived or dropped out at this time."""

    def end_version(self, time: float) -> None:
        """Note that a new version exists from this time on."""


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

    def __init__(self, starts: Starts, policy: AsynchronousPolicy):
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
