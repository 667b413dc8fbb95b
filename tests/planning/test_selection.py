"""Selections of clients, and the history that they read."""

import dataclasses

import numpy as np
import pytest
import tiny
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.base import seeds
from hetero_tf.methods.selections import available, in_time, oort, power_of_choice
from hetero_tf.planning import selection
from hetero_tf.recipe.schema import Plugin

EXAMPLES = np.asarray([10, 20, 30, 40, 0, 15, 25, 35])


def with_selection(name, clients=5, **options):
    loaded = recipe.loads(tiny.IMAGES)
    chosen = dataclasses.replace(loaded.round, clients=clients, selection=Plugin(name, options))
    return dataclasses.replace(loaded, round=chosen)


def pool(able=8, finished=0, losses=None, expected=None, **history):
    zeros = {name: np.zeros(8) for name in selection.COLUMNS}
    return dataclasses.replace(
        selection.pool_of(able, finished),
        examples_of=EXAMPLES.__getitem__,
        seconds_of=np.zeros(8).__getitem__ if expected is None else np.asarray(expected, float).__getitem__,
        losses_of=losses,
        history=zeros | {name: np.asarray(values, float) for name, values in history.items()},
        memory={name: np.zeros(8 if form == "clients" else ()) for name, form in oort.MEMORY.items()},
    )


def choose_by_oort(clients, count, seed=0, **options):
    defaults = {"exploration": 0.9, "round_threshold": 10.0}
    return oort.choose(clients, count, np.random.default_rng(seed), **defaults | options)


def test_uniform_cohorts_have_no_client_twice_and_another_attempt_draws_another():
    seen, config = set(), with_selection("uniform")
    for round in range(40):
        cohort = tiny.cohort(config, 20, round)
        assert cohort.dtype == np.int32
        assert len(set(cohort.tolist())) == 5
        seen |= set(cohort.tolist())
        assert cohort.tolist() != tiny.cohort(config, 20, round, attempt=1).tolist()
        # The draws of earlier versions.
        assert cohort.tolist() == seeds.rng(0, "cohort", round, 0).choice(20, 5, replace=False).tolist()
    assert seen == set(range(20))


def test_cohorts_have_fewer_clients_if_fewer_are_able():
    config = with_selection("uniform")
    choice = selection.select_cohort(config, pool(np.asarray([1, 6])), 5)
    assert sorted(choice.ids.tolist()) == [1, 6] and choice.evaluated.size == 0 and choice.memory == {}


def test_idle_levels_are_not_able():
    levels = recipe.loads(tiny.DENSE, "tiny", ["levels.mix=a1-b1", "levels.assignment=fixed"]).levels
    assert selection.able_clients(levels, 6, 0, 3) == 6
    idle = dataclasses.replace(levels, idle=("a",))
    assert selection.able_clients(idle, 6, 0, 3).tolist() == [3, 4, 5]


def test_candidates_with_the_highest_losses_train():
    losses = np.asarray([5.0, 1.0, 7.0, 7.0, 99.0, 3.0, 7.0, 2.0])
    requests = []

    def losses_of(ids):
        requests.append(ids)
        return losses[ids]

    for seed in range(20):
        rng = np.random.default_rng(seed)
        choice = power_of_choice.choose(pool(losses=losses_of), 2, rng, candidates=4)
        # A client without examples is no candidate.
        assert len(choice.evaluated) == 4 and 4 not in choice.evaluated
        assert choice.evaluated.tolist() == requests[-1].tolist() == sorted(set(choice.evaluated.tolist()))
        others = np.setdiff1d(choice.evaluated, choice.ids)
        assert losses[choice.ids].min() >= losses[others].max()
        # Ties go to the lower id.
        tied = [client for client in choice.evaluated if losses[client] == 7]
        assert set(tied[:2]) <= set(choice.ids.tolist())
    everyone = power_of_choice.choose(pool(losses=losses_of), 2, np.random.default_rng(0), candidates=100)
    assert everyone.ids.tolist() == [2, 3] and len(everyone.evaluated) == 7


@pytest.mark.parametrize(
    ("options", "in_time_clients"),
    [
        ({"seconds": 3.0}, {1, 2, 5}),
        ({"fastest": 0.25}, {2, 5}),
        ({"fastest": 0.25, "seconds": 1.0}, {2}),
        # The fastest client is included even if it is late.
        ({"seconds": 0.5}, {2}),
        ({}, set(range(8))),
    ],
)
def test_clients_that_are_expected_too_late_are_not_chosen(options, in_time_clients):
    clients = pool(expected=[9, 3, 1, 7, 8, 2, 6, 5])
    chosen = [in_time.choose(clients, 2, np.random.default_rng(seed), **options).tolist() for seed in range(60)]
    assert set(np.concatenate(chosen).tolist()) == in_time_clients
    assert {len(each) for each in chosen} == {min(2, len(in_time_clients))}


def test_the_server_waits_until_enough_clients_are_available():
    awake = np.asarray([0, 0, 1800, 1800, 1800, 7200, 9000, 9000])
    clients = dataclasses.replace(pool(), available_at=lambda ids, seconds: awake[ids] <= seconds)
    for count, waited, ids in ((2, 0, {0, 1}), (4, 1800, set(range(5))), (6, 7200, set(range(6)))):
        choices = [available.choose(clients, count, np.random.default_rng(seed)) for seed in range(40)]
        assert {choice.waited for choice in choices} == {waited}
        assert set(np.concatenate([choice.ids for choice in choices]).tolist()) == ids
    # With a limit it starts with fewer clients.
    choice = available.choose(clients, 6, np.random.default_rng(0), max_wait=3600.0)
    assert choice.waited == 1800 and sorted(choice.ids) == [0, 1, 2, 3, 4]
    # Times since the start of the run.
    later = dataclasses.replace(clients, device_seconds=8000.0)
    assert available.choose(later, 7, np.random.default_rng(0)).waited == 1200


def test_a_round_without_available_clients_is_an_error():
    asleep = dataclasses.replace(pool(), available_at=lambda ids, seconds: np.zeros(len(ids), bool))
    assert refusal(available.choose, asleep, 2, np.random.default_rng(0), max_wait=60.0) == (
        "round 1: no client is available within 60 s; change hours or charging of fleet.devices, or raise "
        "round.selection.max_wait. Received: max_wait=60"
    )


def test_oort_begins_with_clients_that_never_returned_by_their_examples():
    drawn = [choose_by_oort(pool(), 2, seed) for seed in range(200)]
    counts = np.bincount(np.concatenate([choice.ids for choice in drawn]), minlength=8)
    assert counts[3] > counts[2] > counts[0] > counts[4] == 0
    assert drawn[0].memory["exploration"] == 0.9 and drawn[0].memory["round_threshold"] == 10


def returned(seconds=1.0, **columns):
    """A history in which all clients but the first have returned once."""
    count = np.arange(8) > 0
    return {"count": count, "round": count * 1.0, "squared_loss": count * 4.0, "seconds": count * seconds, **columns}


def test_oort_prefers_high_losses_and_fast_clients():
    squares = np.asarray([0, 0.01, 0.01, 0.01, 0.01, 9.0, 9.0, 0.01])
    seconds = np.asarray([0, 1, 1, 1, 1, 1, 60, 1.0])
    drawn = [
        choose_by_oort(
            pool(finished=2, expected=np.ones(8), **returned(squared_loss=squares, seconds=seconds)),
            2,
            seed,
            exploration_min=0.0,
            exploration=1e-9,
        )
        for seed in range(100)
    ]
    counts = np.bincount(np.concatenate([choice.ids for choice in drawn]), minlength=8)
    assert counts[5] > 2 * counts[1] > 0 and counts[6] == 0
    assert np.flatnonzero(drawn[0].memory["exploited"]).tolist() == drawn[0].ids[:1].tolist()


@pytest.mark.parametrize(
    ("clients", "count"),
    [
        # All able clients are chosen; no able client has returned; all losses are 0; no able client is new.
        (pool(finished=3, **returned()), 8),
        (pool(np.asarray([0]), finished=3, **returned()), 1),
        (pool(finished=3, **returned(squared_loss=np.zeros(8))), 4),
        (pool(np.asarray([1, 2, 3]), finished=3, **returned()), 2),
    ],
)
def test_oort_fills_cohorts_where_the_public_code_raises(clients, count):
    choice = choose_by_oort(clients, count)
    assert len(set(choice.ids.tolist())) == count and np.isin(choice.ids, clients.ids).all()


def test_exploration_ends_when_all_clients_have_returned():
    everyone = {"count": np.ones(8), "round": np.ones(8), "squared_loss": np.ones(8)}
    first = choose_by_oort(pool(finished=1, **everyone), 2)
    assert first.memory["exploration"] == 0
    after = dataclasses.replace(pool(finished=2, **everyone), memory=first.memory)
    assert choose_by_oort(after, 2).memory["exploration"] == 0


def test_round_threshold_follows_the_utility():
    memory = {"window_utility": 0.0, "previous_utility": 0.0, "round_threshold": 50.0}
    thresholds = []
    for round, utility in enumerate([1, 1, 1, 1, 9, 9, 2, 2], 1):
        memory = oort.pace(memory, utility, round, step=2, delta=5.0)
        thresholds.append(memory["round_threshold"])
    # A steady utility after four rounds raises it, a jump after six lowers it; a small change leaves it.
    assert thresholds == [50, 50, 50, 55, 55, 50, 50, 50]
    steady = {"window_utility": 1.0, "previous_utility": 1.0, "round_threshold": 98.0}
    assert oort.pace(steady, 0.0, 4, step=2, delta=5.0)["round_threshold"] == 100
    assert np.isinf(oort.preferred_seconds(np.ones(4), 100.0))


def test_history_has_the_last_result_of_each_client():
    config = with_selection("oort")
    history = selection.begin_history(config, 4)
    assert selection.begin_history(with_selection("uniform"), 4) == {}
    first = selection.record_round(history, 1, np.asarray([2, 0]), [4.0, 9.0], [7.0, 8.0], 60.0, {"exploration": 0.5})
    second = selection.record_round(first, 2, np.asarray([2]), [1.0], [3.0], 5.0, {})
    columns = {name: values.tolist() for name, values in second["clients"].items()}
    assert columns == {
        "squared_loss": [9, 0, 1, 0],
        "seconds": [8, 0, 3, 0],
        "round": [1, 0, 2, 0],
        "count": [1, 0, 2, 0],
    }
    assert second["selection"]["exploration"] == 0.5 and second["selection"]["exploited"].shape == (4,)
    assert second["run"] == {"device_seconds": 65}
    # A history is not changed.
    assert history["clients"]["count"].sum() == 0 and first["clients"]["count"][2] == 1
