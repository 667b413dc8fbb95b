"""Time of a round: exact seconds and counts, statistics of draws, independence of other clients, and deadlines."""

import numpy as np
import pytest
from clocks import LEVELS, PHONE, clock_of, deadline

from hetero_tf.planning import timing

IDS, STEPS = (3, 7, 11, 20), (10, 4, 10, 0)


def simulate(clock, round=0, ids=IDS, levels=(0, 0, 1, 1), steps=STEPS, pieces=None):
    """A round whose steps read one example each."""
    work = [client_work([1] * count, [0] * count) for count in steps]
    return timing.time_round(clock, round, ids, levels, work, pieces or [1] * len(ids))


def client_work(examples, stages):
    """Work of steps that read these numbers of examples, in these stages."""
    rows = np.where(np.arange(2) < np.reshape(examples, [-1, 1]), 0, -1)
    return timing.ClientWork(rows, np.zeros(len(rows), int), np.asarray(stages, int))


def test_round_waits_for_the_slowest_client():
    round = simulate(clock_of(LEVELS))
    assert round.steps.dtype == np.int32 and round.steps.tolist() == list(STEPS)
    assert round.times.total.tolist() == [20.0, 8.0, 5.0, 0.0] and round.seconds == 20.0
    assert round.metrics() == {
        "dropped": 0,
        "late": 0,
        "partial": 0,
        "round_seconds": 20.0,
        # The fourth client has no steps, so it returns nothing.
        "client_seconds": 11.0,
        "round_energy": 0.0,
    }


def test_time_and_energy_of_transfers_and_operations():
    round = simulate(clock_of(PHONE, size=2_000_000))
    # 8 Mbit/s are 1e6 bytes per second.
    assert round.times.download.tolist() == [2.0, 2.0, 1.0, 1.0]
    assert round.times.compute.tolist() == [20.0, 8.0, 15.0, 0.0]
    assert round.times.upload.tolist() == [4.0, 4.0, 2.0, 0.0]
    assert round.times.energy.tolist() == [3 * 20 + 2 * 6, 3 * 8 + 2 * 6, 3 * 15 + 2 * 3, 2.0]
    assert (round.seconds, round.metrics()["round_energy"]) == (26.0, 161.0)


@pytest.mark.parametrize(("late", "steps", "partial"), [("drop", [0, 4, 10, 0], 0), ("partial", [4, 4, 10, 0], 1)])
def test_late_clients_return_nothing_or_completed_steps(late, steps, partial):
    round = simulate(clock_of(LEVELS, deadline(9.9, late)))
    assert round.steps.tolist() == steps and round.seconds == 9.9
    metrics = round.metrics()
    assert (metrics["dropped"], metrics["late"], metrics["partial"]) == (0, 1, partial)
    assert round.times.total.tolist() == [9.9, 8.0, 5.0, 0.0]
    assert round.statuses[0] == ("partial" if partial else "late")


def test_late_client_reserves_the_time_of_its_upload():
    partial = simulate(clock_of(PHONE, deadline(15, "partial"), size=2_000_000))
    # Level a: 2 s for the download, 4 s for the upload, and 4 steps of 2 s in the other 9 s.
    assert partial.steps.tolist() == [4, 4, 8, 0] and partial.statuses == ("partial", "returned", "partial", "returned")
    assert (partial.times.compute[0], partial.times.upload[0], partial.times.total[0]) == (9.0, 4.0, 15.0)
    dropped = simulate(clock_of(PHONE, deadline(15), size=2_000_000))
    assert (dropped.times.compute[0], dropped.times.upload[0], dropped.steps[0]) == (13.0, 0.0, 0)
    too_short = simulate(clock_of(PHONE, deadline(5, "partial"), size=2_000_000))
    assert too_short.steps.tolist() == [0, 0, 1, 0]
    assert too_short.statuses == ("late", "late", "partial", "returned")


def test_steps_of_different_cost_are_counted_one_by_one():
    clock = clock_of(PHONE, deadline(10, "partial"), flops=((1.0, 4.0), (0.5, 2.0)))
    # Seconds of the steps: 1 + 1, 1 + 2, 1 + 4, 1 + 4.
    work = client_work([1, 2, 1, 1], [0, 0, 1, 1])
    for piece, steps in ((1, 3), (2, 2)):
        assert timing.time_round(clock, 0, [5], [0], [work], [piece]).steps.tolist() == [steps]


def test_last_step_may_end_at_the_deadline():
    # In floats 0.3 / 0.1 is below 3 and 10 * 0.1 = 1.
    for seconds, whole in ((0.3, 3), (1.0, 10), (0.29, 2), (1.1, 10)):
        clock = clock_of("fleet={devices: {any: {seconds_per_step: 0.1}}}", deadline(seconds, "partial"))
        round = simulate(clock, ids=[0], levels=[0], steps=[10])
        assert round.steps.tolist() == [whole]
        assert round.metrics()["late"] == (whole < 10)


def test_round_lasts_until_the_deadline_only_if_a_client_is_missing():
    assert simulate(clock_of(LEVELS, deadline(50))).seconds == 20.0
    gone = "fleet={devices: {any: {seconds_per_step: 1, down_mbit: 8, dropout: 0.998}}}"
    rounds = simulate(clock_of(gone, deadline(50), size=2_000_000)), simulate(clock_of(gone, size=2_000_000))
    assert [round.seconds for round in rounds] == [50.0, 2.0]
    for round in rounds:
        assert round.steps.tolist() == [0] * 4 and round.times.total.tolist() == [2.0, 2.0, 1.0, 1.0]
        assert round.statuses == ("dropped",) * 4 and round.metrics()["client_seconds"] is None


def test_over_selection_merges_the_first_clients():
    clock = clock_of(PHONE, "round.clients=2", "round.policy=over_selection", size=2_000_000)
    round = simulate(clock, steps=(10, 4, 4, 4), levels=(0, 0, 0, 1))
    # The last client is the fastest; of the two equal ones the lower id counts.
    assert round.steps.tolist() == [0, 4, 0, 4] and round.seconds == 14.0
    assert round.statuses == ("late", "returned", "late", "returned") and round.metrics()["late"] == 2
    # The first client works until the end of the round, but uploads nothing.
    assert (round.times.compute[0], round.times.upload[0], round.times.energy[0]) == (12.0, 0.0, 40.0)


def test_over_selection_waits_for_all_if_too_few_return():
    clock = clock_of(LEVELS, "round.clients=4", "round.policy=over_selection")
    assert simulate(clock).seconds == 20.0 and simulate(clock).metrics()["late"] == 0


def test_dropouts_follow_the_probability_and_are_drawn_every_round():
    ids = np.arange(4000)
    clock = clock_of("fleet={devices: {any: {seconds_per_step: 1, dropout: 0.3}}}")
    rounds = [simulate(clock, round, ids, [0] * 4000, [1] * 4000) for round in range(3)]
    for round in rounds:
        assert round.metrics()["dropped"] == (round.steps == 0).sum()
        assert round.metrics()["dropped"] / 4000 == pytest.approx(0.3, abs=0.03)
    # Independent draws: both out with the chance 0.09.
    assert ((rounds[0].steps == 0) & (rounds[1].steps == 0)).mean() == pytest.approx(0.09, abs=0.02)


# Dropped, late and partial clients and steps of two rounds, recorded with the section `availability` of version 0.2.
FORMER = {
    ("drop", 1.0): [
        ((10, 4, 0), [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 3, 0, 5, 0]),
        ((7, 3, 0), [1, 2, 3, 0, 0, 0, 0, 1, 2, 0, 4, 0, 6, 0, 1, 2, 0, 0, 5, 0]),
    ],
    ("partial", 1.0): [
        ((10, 4, 2), [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 4, 0, 0, 3, 2, 5, 0]),
        ((7, 3, 3), [1, 2, 3, 0, 0, 2, 0, 1, 2, 0, 4, 0, 6, 2, 1, 2, 0, 2, 5, 0]),
    ],
    ("drop", None): [
        ((10, 0, 0), [1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 4, 5, 0, 7, 0, 0, 3, 4, 5, 6]),
        ((7, 0, 0), [1, 2, 3, 0, 0, 6, 0, 1, 2, 0, 4, 0, 6, 7, 1, 2, 0, 4, 5, 0]),
    ],
}
FORMER_SECONDS = {1.0: [1.0, 1.0], None: [3.5698081324203006, 2.5324522721789045]}


@pytest.mark.parametrize(("late", "seconds"), FORMER)
def test_fleet_of_levels_equals_the_former_availability(late, seconds):
    fleet = "{a: {seconds_per_step: 0.1, dropout: 0.2}, b: {seconds_per_step: 0.3, dropout: 0.2}}"
    overrides = [f"fleet={{assign: levels, jitter: 0.4, devices: {fleet}}}", "seed=5"]
    clock = clock_of(*overrides, *([deadline(seconds, late)] if seconds else []))
    for index, (counts, steps) in enumerate(FORMER[late, seconds]):
        round = simulate(clock, index, np.arange(3, 23), [0, 1] * 10, np.arange(20) % 7 + 1, [1, 2, 1, 3] * 5)
        metrics = round.metrics()
        assert (metrics["dropped"], metrics["late"], metrics["partial"]) == counts
        assert round.steps.tolist() == steps
        assert round.seconds == FORMER_SECONDS[seconds][index]


def test_outcome_of_a_client_does_not_depend_on_the_others():
    fleet = "fleet={spread: 0.3, jitter: 0.4, devices: {any: {seconds_per_step: 0.2, dropout: 0.3}}}"
    clock, ids, levels, steps = (
        clock_of(fleet, deadline(1.0, "partial")),
        np.arange(50),
        [0, 1] * 25,
        np.arange(50) % 13,
    )
    everyone, again = (simulate(clock, 2, ids, levels, steps) for _ in range(2))
    assert everyone.steps.tolist() == again.steps.tolist()
    counts = everyone.metrics()
    assert 0 < counts["partial"] <= counts["late"] and counts["dropped"] > 0
    for client in (0, 17, 49):
        alone = simulate(clock, 2, [client], [levels[client]], [steps[client]])
        assert (alone.steps[0], alone.statuses[0]) == (everyone.steps[client], everyone.statuses[client])
