"""Dropouts and stragglers: exact counts, statistics of many draws, and independence of other clients."""

from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.planning import availability

LEVELS = ("a", "a", "b", "b")
STEPS = (10, 4, 10, 0)


def make_settings(dropout=0.0, deadline=None, seconds_per_step=(), spread=0.0, late="drop"):
    return SimpleNamespace(
        dropout=dropout, deadline=deadline, seconds_per_step=dict(seconds_per_step), spread=spread, late=late
    )


def limit(settings, round=0, ids=(3, 7, 11, 20), levels=LEVELS, steps=STEPS, seed=0):
    return availability.limit_steps(settings, seed, round, np.asarray(ids), levels, np.asarray(steps))


def test_all_clients_return_all_steps_by_default():
    outcome = limit(make_settings())
    assert outcome.steps.dtype == np.int32 and outcome.steps.tolist() == list(STEPS)
    assert outcome.metrics() == {
        "dropped": 0,
        "late": 0,
        "partial": 0,
        "simulated_seconds": 0.0,
        "simulated_client_seconds": 0.0,
    }


def test_seconds_are_steps_times_seconds_per_step():
    outcome = limit(make_settings(seconds_per_step={"a": 2.0, "b": 0.5}))
    assert outcome.seconds.tolist() == [20.0, 8.0, 5.0, 0.0]
    assert outcome.round_seconds == 20.0
    # The fourth client has no steps, so it returns nothing.
    assert outcome.metrics()["simulated_client_seconds"] == 11.0


@pytest.mark.parametrize(("late", "steps", "partial"), [("drop", [0, 4, 10, 0], 0), ("partial", [4, 4, 10, 0], 1)])
def test_late_clients_are_dropped_or_return_whole_steps(late, steps, partial):
    outcome = limit(make_settings(deadline=9.9, seconds_per_step={"a": 2.0, "b": 0.5}, late=late))
    assert outcome.steps.tolist() == steps
    assert (outcome.dropped, outcome.late, outcome.partial) == (0, 1, partial)
    assert outcome.seconds.tolist() == [9.9, 8.0, 5.0, 0.0]
    assert outcome.round_seconds == 9.9


def test_late_client_without_a_whole_step_returns_nothing():
    outcome = limit(make_settings(deadline=1.0, seconds_per_step={"a": 2.0, "b": 0.1}, late="partial"))
    assert outcome.steps.tolist() == [0, 0, 10, 0]
    assert (outcome.late, outcome.partial) == (2, 0)


def test_last_step_may_end_at_the_deadline():
    # In floats 0.3 / 0.1 is below 3 and 10 * 0.1 = 1.
    for deadline, whole in ((0.3, 3), (1.0, 10), (0.29, 2), (1.1, 10)):
        outcome = limit(
            make_settings(deadline=deadline, seconds_per_step={"a": 0.1}, late="partial"),
            ids=[0],
            levels=["a"],
            steps=[10],
        )
        assert outcome.steps.tolist() == [whole]
        assert outcome.late == (whole < 10)


def test_round_lasts_until_the_deadline_only_if_a_client_is_missing():
    on_time = make_settings(deadline=50.0, seconds_per_step={"a": 2.0, "b": 0.5})
    assert limit(on_time).round_seconds == 20.0
    all_dropped = limit(make_settings(dropout=1.0, deadline=50.0, seconds_per_step={"a": 2.0, "b": 0.5}))
    assert all_dropped.round_seconds == 50.0
    assert (all_dropped.dropped, all_dropped.late) == (4, 0)
    assert all_dropped.steps.tolist() == [0, 0, 0, 0] and all_dropped.seconds.tolist() == [0.0] * 4
    assert all_dropped.metrics()["simulated_client_seconds"] is None


def test_dropouts_follow_the_probability_and_are_drawn_every_round():
    ids = np.arange(4000)
    rounds = [limit(make_settings(dropout=0.3), round, ids, ["a"] * 4000, np.ones(4000, int)) for round in range(3)]
    for outcome in rounds:
        assert outcome.dropped == (outcome.steps == 0).sum()
        assert outcome.dropped / 4000 == pytest.approx(0.3, abs=0.03)
    # Independent draws: both out with the chance 0.09.
    both = (rounds[0].steps == 0) & (rounds[1].steps == 0)
    assert both.mean() == pytest.approx(0.09, abs=0.02)
    other = limit(make_settings(dropout=0.3), 0, ids, ["a"] * 4000, np.ones(4000, int), seed=1)
    assert other.steps.tolist() != rounds[0].steps.tolist()


def test_client_paces_are_log_normal_around_the_level():
    count = 20_000
    outcome = limit(
        make_settings(seconds_per_step={"a": 0.02}, spread=0.5), 4, np.arange(count), ["a"] * count, np.ones(count)
    )
    logs = np.log(outcome.seconds / 0.02)
    assert logs.mean() == pytest.approx(0, abs=0.02)
    assert logs.std() == pytest.approx(0.5, abs=0.02)
    # A normal number lies within one standard deviation in 68.3 of 100 cases.
    assert (np.abs(logs) < 0.5).mean() == pytest.approx(0.683, abs=0.02)
    assert abs(np.corrcoef(logs[:-1], logs[1:])[0, 1]) < 0.03


def test_outcome_of_a_client_does_not_depend_on_the_others():
    settings = make_settings(0.3, 1.0, {"a": 0.1, "b": 0.3}, spread=0.4, late="partial")
    ids, levels, steps = np.arange(50), ["a", "b"] * 25, np.arange(50) % 13
    everyone, again = (limit(settings, 2, ids, levels, steps) for _ in range(2))
    assert everyone.steps.tolist() == again.steps.tolist()
    assert 0 < everyone.partial <= everyone.late and everyone.dropped > 0
    for client in (0, 17, 49):
        alone = limit(settings, 2, [client], [levels[client]], [steps[client]])
        assert (alone.steps[0], alone.seconds[0]) == (everyone.steps[client], everyone.seconds[client])


@pytest.mark.parametrize(
    "settings, needed",
    [
        (
            make_settings(deadline=2.9, seconds_per_step={"a": 2, "b": 1}),
            "needs 3 s (3 steps of 1 s). Set at least 3. Received: 2.9",
        ),
        (
            make_settings(deadline=0.9, seconds_per_step={"a": 2, "b": 1}, late="partial"),
            "needs 1 s (1 step of 1 s). Set at least 1. Received: 0.9",
        ),
        (make_settings(deadline=3, seconds_per_step={"a": 2, "b": 1}), None),
        (make_settings(deadline=1, seconds_per_step={"a": 2, "b": 1}, late="partial"), None),
        (make_settings(deadline=0.1, seconds_per_step={"a": 2, "b": 1}, spread=1.0), None),
        (make_settings(dropout=0.5), None),
    ],
)
def test_deadline_that_excludes_every_client_is_rejected(settings, needed):
    recipe = SimpleNamespace(availability=settings, levels=SimpleNamespace(names=("a", "b", "c"), idle=("c",)))
    if needed is None:
        availability.check_deadline(recipe, dict.fromkeys("ab", 3))
        return
    message = refusal(availability.check_deadline, recipe, dict.fromkeys("ab", 3))
    assert message.startswith("availability.deadline: the deadline excludes every client: the fastest level needs ")
    assert needed in message


def test_fastest_level_decides_whether_the_deadline_is_possible():
    levels = SimpleNamespace(names=("a", "b"), idle=())
    recipe = SimpleNamespace(availability=make_settings(deadline=5.9, seconds_per_step={"a": 2, "b": 1}), levels=levels)
    message = refusal(availability.check_deadline, recipe, {"a": 3, "b": 9})
    assert "the fastest level needs 6 s (3 steps of 2 s). Set at least 6." in message
    availability.check_deadline(recipe, {"a": 3, "b": 5})


def test_missing_seconds_of_a_level_are_reported():
    message = "`availability.seconds_per_step` must name every level of the mix. Received: nothing for b, c"
    with pytest.raises(ValueError, match=message):
        limit(make_settings(seconds_per_step={"a": 1.0}), levels=("a", "c", "b", "b"))
