"""Rounds of asynchronous policies: starts of clients, and plans of the clients of a version."""

import collections
import heapq

import numpy as np
import pytest
import tiny
from oracle import StaleRounds

from hetero_tf.methods.policies import AsynchronousPolicy
from hetero_tf.planning.asynchronous import DROPPED, ClientStart, ClientStarts, EventQueue

FLEET = "fleet={devices: {fast: {seconds_per_step: 0.1, dropout: 0.2}, slow: {seconds_per_step: 0.7}}, jitter: 0.5}"
EQUAL = "fleet={devices: {phone: {seconds_per_step: 0.5}}}"


def policy(buffer, limit=8, flush=None):
    return AsynchronousPolicy(
        buffer=buffer, factors=(1.0,) * (limit + 1), adds="changes", divisor="clients", flush=flush
    )


def queue_of(clients, running, buffer, seconds):
    """An event queue of clients with fixed durations."""

    def choose(count, draw, version, time):
        return np.random.default_rng(draw).permutation(clients)[: min(count, clients)].tolist(), 0.0

    def durations(version, ids):
        return seconds[ids], np.zeros(len(ids), bool)

    return EventQueue(ClientStarts(running, choose, durations), policy(buffer))


def test_a_fixed_number_of_clients_runs_and_none_runs_twice():
    seconds = np.random.default_rng(0).lognormal(0, 1, 40)
    queue = queue_of(40, 12, 5, seconds)
    events = []
    for number in range(30):
        version = queue.version(number)
        assert len(set(version.clients)) == len(version.clients)
        for client, start, end in zip(version.clients, version.started, version.arrived):
            events += [(start, 1, client), (end, 0, client)]
    running, ended = collections.Counter(), queue.version(29).ended
    for time, is_start, client in sorted(events):
        running[client] += 1 if is_start else -1
        assert running[client] in (0, 1)
        if time <= ended:
            assert sum(running.values()) in (11, 12) or time == 0


def test_a_version_ends_when_all_clients_have_returned():
    """A buffer that is never full does not stop the run."""
    queue = queue_of(4, 4, 9, np.asarray([1.0, 2.0, 3.0, 4.0]))
    assert [queue.version(number).ended for number in range(3)] == [4.0, 8.0, 12.0]


@pytest.mark.long
@pytest.mark.parametrize("assignment", ["dynamic", "fixed"])
def test_equal_durations_and_a_buffer_of_the_cohort_are_synchronous_rounds(assignment, eager):
    # Equal shares, so that clients of equal devices take equally long.
    dataset, partition = tiny.images(sizes=(6, 6, 6, 6))
    words = (EQUAL, f"levels.assignment={assignment}", "levels.mix=a-c")
    wait, buffered = (
        tiny.process(tiny.DENSE, *words, *more, data=(dataset, partition))
        for more in ([], ["round.policy={name: buffered, size: 3}"])
    )
    plans = [[process.plan(number) for number in range(2)] for process in (wait, buffered)]
    for one, other in zip(*plans):
        for name, array in one.arrays().items():
            np.testing.assert_array_equal(other.arrays()[name], array)
        assert one.timing.metrics()["round_seconds"] == pytest.approx(other.timing.metrics()["round_seconds"])
    expected, _ = wait.run(wait.initialize(), plans[0])
    actual, _ = buffered.run(buffered.initialize(), plans[1])
    for path, value in expected.weights.items():
        np.testing.assert_array_equal(actual.weights[path], value)


def test_every_policy_notices_a_client_that_drops_out_after_its_download():
    lost = "fleet={devices: {any: {seconds_per_step: 1, down_mbit: 0.01, up_mbit: 0.01, dropout: 0.99}}}"
    seconds = []
    for policy in ("wait", "{name: buffered, size: 2}"):
        timing = tiny.process(tiny.DENSE, lost, f"round.policy={policy}").plan(0).timing
        seconds.append((timing.seconds, timing.times.download.max()))
    # The buffer starts its clients again in the same round, each once.
    assert seconds[0][0] == seconds[0][1] and 0 < seconds[1][0] <= 2 * seconds[1][1]


def test_plans_do_not_depend_on_the_order_in_which_they_are_made():
    words = (FLEET, "round.policy={name: buffered, size: 2, max_staleness: 3}")
    one, other = (tiny.process(tiny.DENSE, *words) for _ in range(2))
    forward = [one.plan(number) for number in range(12)]
    backward = [other.plan(number) for number in reversed(range(12))][::-1]
    statuses = set()
    for first, second in zip(forward, backward):
        assert first.timing.metrics() == second.timing.metrics()
        assert {name: array.tolist() for name, array in first.arrays().items()} == {
            name: array.tolist() for name, array in second.arrays().items()
        }
        statuses |= set(first.timing.statuses)
        assert (first.delays <= 3).all() and (first.steps[first.delays > 0] > 0).all()
        dropped = np.asarray(first.timing.statuses) == "dropped"
        assert not first.timing.times.compute[dropped].any()
    assert {"returned", "dropped"} <= statuses
    assert max(int(plan.delays.max(initial=0)) for plan in forward) > 0


@pytest.mark.long
def test_a_run_resumes_in_the_middle_of_a_buffer(eager):
    words = (FLEET, "round.policy={name: buffered, size: 2}", "round.server={name: momentum}")
    process, other = (tiny.process(tiny.DENSE, *words) for _ in range(2))
    state, rows = process.run(process.initialize(), [process.plan(number) for number in range(6)])
    half, _ = process.run(process.initialize(), [process.plan(number) for number in range(3)])
    assert any(np.any(value) for value in half.pending["total"].values())
    resumed, later_rows = other.run(half, [other.plan(number) for number in range(3, 6)])
    for path, value in state.weights.items():
        np.testing.assert_array_equal(resumed.weights[path], value)
    assert later_rows == rows[3:]


def test_starts_wait_until_clients_are_available():
    """Client 0 is always available, the others from second 100 on."""

    def choose(count, draw, version, time):
        return ([0, 1, 2][:count], 0.0) if time >= 100 else ([], 100.0 - time)

    def durations(version, ids):
        return np.full(len(ids), 5.0), np.zeros(len(ids), bool)

    queue = EventQueue(ClientStarts(2, choose, durations), policy(2))
    assert (queue.version(0).started, queue.version(0).ended) == ([100.0, 100.0], 105.0)


@pytest.mark.parametrize("selection", ["{name: in_time, fastest: 0.5}", "available"])
def test_selections_that_read_no_values(selection):
    process = tiny.process(
        tiny.DENSE, FLEET, "round.clients=2", "round.policy=immediate", f"round.selection={selection}"
    )
    clients = {client for number in range(20) for client in process.plan(number).timing.clients.tolist()}
    assert len(clients) == (2 if "in_time" in selection else 4)


@pytest.mark.parametrize("limit", [pytest.param(0, marks=pytest.mark.long), 4])
def test_planned_rounds_equal_a_loop_that_keeps_every_result(limit, request):
    if limit:
        request.getfixturevalue("eager")
    words = (FLEET, f"round.policy={{name: buffered, size: 2, max_staleness: {limit}}}", "precision=float64")
    process = tiny.process(tiny.DENSE, "levels.mix=a-c", *words)
    plans, state = [process.plan(number) for number in range(8)], process.initialize()
    after, rows = process.run(state, plans)
    rule = process.setup.algorithm.stale_merge
    expected = StaleRounds(process).play({path: value.numpy() for path, value in state.weights.items()}, plans, rule)
    for path, value in after.weights.items():
        np.testing.assert_allclose(value, expected[path], rtol=1e-11, atol=1e-13)
    assert (sum(row["stale"] for row in rows) > 0) == (limit == 0)


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
    queue = EventQueue(ListedStarts([(0, 0.0, 2.0), (1, 2.0, 1.0), (2, 2.5, 9.0)]), policy(1, 100))
    assert queue.version(0).clients == [0]
    assert queue.version(1).clients == [1, 2]
    assert queue.version(1).ended == 3.0
    assert queue.version(1).staleness == [0, 1]


def test_a_client_that_drops_out_is_no_arrival():
    class Dropping(ListedStarts):
        def start(self, time, version, busy):
            return [each._replace(dropped=each.client == 1) for each in super().start(time, version, busy)]

    queue = EventQueue(Dropping([(0, 0.0, 2.0), (1, 0.0, 1.0), (2, 1.0, 3.0), (3, 1.0, 9.0)]), policy(2, limit=0))
    version = queue.version(0)
    assert (version.staleness[:3], version.ended) == ([0, DROPPED, 0], 4.0)
