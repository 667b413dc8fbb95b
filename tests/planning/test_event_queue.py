"""The event queue of asynchronous rounds."""

import heapq

import numpy as np
import pytest

from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.planning.asynchronous import DROPPED, ClientStart, EventQueue


def policy(buffer, limit=100, flush=None):
    return AsynchronousPolicy(
        buffer=buffer, factors=(1.0,) * (limit + 1), adds="changes", divisor="clients", flush=flush
    )


class ListedStarts:
    """Starts at known times: [(client, time, duration)]."""

    def __init__(self, listed):
        self.listed = list(listed)

    def next_time(self):
        return self.listed[0][1] if self.listed else None

    def start(self, time, version, busy):
        client, _, duration = self.listed.pop(0)
        assert client not in busy
        return [ClientStart(client, duration, dropped=duration < 0)]

    def arrive(self, time):
        """Change nothing: no start waits for an arrival."""

    def end_version(self, time):
        """Change nothing: no start waits for a version."""


def naive(listed, buffer, limit, flush):
    """A loop over all arrivals in order: (staleness by start, times of the steps)."""
    heap = [(time + duration, number, time) for number, (_, time, duration) in enumerate(listed)]
    heapq.heapify(heap)
    steps, staleness, count, arrivals = [], {}, 0, 0
    while heap:
        arrived, number, started = heapq.heappop(heap)
        # A start at the time of a step sees the new version.
        staleness[number] = len(steps) - sum(step <= started for step in steps)
        arrivals, count = arrivals + 1, count + (staleness[number] <= limit)
        if count == buffer or (flush and arrivals % flush == 0 and count):
            steps.append(arrived)
            count = 0
    return staleness, steps


@pytest.mark.parametrize(("buffer", "limit", "flush"), [(1, 100, None), (3, 100, None), (4, 2, None), (4, 100, 6)])
def test_versions_equal_a_loop_over_all_arrivals(buffer, limit, flush):
    rng = np.random.default_rng(buffer)
    times = np.cumsum(rng.integers(0, 3, 200)).tolist()
    listed = [(number, time, float(rng.integers(1, 20))) for number, time in enumerate(times)]
    staleness, steps = naive(listed, buffer, limit, flush)
    queue, seen = EventQueue(ListedStarts(listed), policy(buffer, limit, flush)), {}
    # The last versions are open when the list ends.
    for number in range(len(steps) // 2):
        version = queue.version(number)
        assert version.ended == steps[number]
        seen |= dict(zip(version.clients, version.staleness))
    assert len(seen) > 50 and max(seen.values()) > 1
    for client, value in seen.items():
        assert value == staleness[client] or (value > limit and staleness[client] > limit)


def test_a_client_that_starts_when_a_version_ends_downloads_the_new_one():
    queue = EventQueue(ListedStarts([(0, 0.0, 2.0), (1, 2.0, 1.0), (2, 2.5, 9.0)]), policy(1))
    assert queue.version(0).clients == [0]
    assert queue.version(1).clients == [1, 2]
    assert queue.version(1).ended == 3.0
    assert queue.version(1).staleness == [0, 1]


def test_versions_do_not_depend_on_the_order_of_calls():
    listed = [(number, float(number), 3.0) for number in range(40)]
    one, other = (EventQueue(ListedStarts(listed), policy(2)) for _ in range(2))
    assert [one.version(number) for number in range(9)][5] == other.version(5)
    assert one.version(2) == other.version(2)


def test_a_client_that_drops_out_is_no_arrival():
    class Dropping(ListedStarts):
        def start(self, time, version, busy):
            return [each._replace(dropped=each.client == 1) for each in super().start(time, version, busy)]

    queue = EventQueue(Dropping([(0, 0.0, 2.0), (1, 0.0, 1.0), (2, 1.0, 3.0), (3, 1.0, 9.0)]), policy(2, limit=0))
    version = queue.version(0)
    assert (version.staleness[:3], version.ended) == ([0, DROPPED, 0], 4.0)
