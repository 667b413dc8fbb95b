"""Private rounds: how far one client moves the sum, the noise, and the equality with rounds without privacy."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import refusal

from hetero_tf.models.state import flatten_state
from hetero_tf.planning.privacy_account import Sampling, epsilon
from hetero_tf.rounds.private_sum import expected_coverage
from hetero_tf.rounds.round_setup import Update
from hetero_tf.run.learning_process import advance

# Levels of unequal width, one client each of a and b, two of c; no norm and no clipping of gradients.
FIXED = tiny.DENSE.replace("dynamic", "fixed").replace("a-b-c", "a1-b1-c2").replace("clip_norm: 1.0", "clip_norm: null")
OPTIONS = ("precision=float64", "round.label_rows=all", "round.clients=4")


@functools.cache
def plain():
    return tiny.process(FIXED, *OPTIONS)


def private(clip, noise=0.0, *overrides, base=FIXED):
    privacy = f"privacy={{clip: {clip}, noise: {noise}, seed: 7}}"
    return tiny.process(base, *OPTIONS, "round.selection=poisson", privacy, *overrides)


def run(process, cohort, state=None):
    """The weights after a round of some clients, as one row in the order of the global values."""
    state = process.initialize() if state is None else state
    after, _ = process.run(state, [process.plan(state.round, cohort)])
    return np.concatenate([np.ravel(after.weights[path]) for path in process.paths])


def release(process, cohort):
    """The sum that a round releases: its change times the expected number of clients of each entry."""
    start = process.initialize()
    row = np.concatenate([np.ravel(start.weights[path]) for path in process.paths])
    return (run(process, cohort, start) - row) * np.asarray(expected_coverage(process.setup))


def blocks(process):
    """The entries of each nested block: those of level c, those that b adds to it, and those that only a has."""
    expected = np.asarray(expected_coverage(process.setup))
    return [np.flatnonzero(np.isclose(expected, count)) for count in np.unique(expected.round(9)) if count > 0]


def test_one_client_moves_the_sum_by_at_most_its_clip(eager):
    """In float64, for every client that is removed and every pair of which one replaces the other."""
    clip = 0.01
    process = private(clip)
    whole, alone = release(process, [0, 1, 2, 3]), {client: release(process, [client]) for client in range(4)}
    nested = blocks(process)
    assert [len(entries) > 0 for entries in nested] == [True, True, True]
    for client in range(4):
        others = [other for other in range(4) if other != client]
        removed = whole - release(process, others)
        # The clip is small, so that each client reaches it; the bound of a block follows.
        assert np.linalg.norm(removed) == pytest.approx(clip, rel=1e-6)
        assert max(np.linalg.norm(removed[entries]) for entries in nested) <= clip * (1 + 1e-9)
        for other in others:
            replaced = alone[client] - alone[other]
            assert np.linalg.norm(replaced) <= 2 * clip * (1 + 1e-9)
    # Without privacy the removal of the only client of level a moves the mean of its entries by all of its change.
    before = np.concatenate([np.ravel(value) for value in process.initialize().weights.values()])
    mean = run(plain(), [0, 1, 2, 3]) - run(plain(), [1, 2, 3])
    change = run(plain(), [0]) - before
    np.testing.assert_allclose(mean[nested[0]], change[nested[0]], atol=1e-12)


def with_update(process, change):
    """The process whose clients return `start + change(client)`, [K, 1], instead of trained values."""

    def update(weights, start, steps, key, entries):
        return start + tf.cast(change(key[:, 2:]), start.dtype) * tf.ones_like(start)

    return tiny.with_setup(process, algorithm={"update": Update(update, is_compression=False, has_errors=False)})


def test_a_replaced_client_may_move_the_sum_by_two_clips(eager):
    """The bound of a cohort of fixed size is reached by two clients with opposite changes."""
    process = with_update(private(0.01), lambda client: tf.where(client == 2, 1.0, -1.0))
    difference = release(process, [0, 1, 2]) - release(process, [0, 1, 3])
    assert np.linalg.norm(difference) == pytest.approx(0.02, rel=1e-9)


# Keys that decide which values of a client are merged, and from which of its networks.
MERGED = {
    "plain": (),
    "personal": ("round.personal=[biases]",),
    "by_level": ("round.by_level=[biases]",),
    "twin": ("client.personalization=ditto",),
    "frozen": ("model.frozen=[1]",),
    "update": ("client.update={name: clip, norm: 0.01}",),
}


@pytest.mark.parametrize("overrides", MERGED.values(), ids=MERGED)
def test_without_noise_and_clip_a_full_round_is_that_without_privacy(overrides, eager):
    """The expected number of clients of each entry is the real one if all clients take part."""
    everyone, expected = [0, 1, 2, 3], tiny.process(FIXED, *OPTIONS, *overrides)
    np.testing.assert_allclose(
        run(private(1e9, 0.0, *overrides), everyone), run(expected, everyone), rtol=0, atol=1e-13
    )


def test_the_noise_has_the_stated_variance(eager):
    """Mean, variance and correlation of the noise in the sum, within five standard errors; no noise elsewhere."""
    clip, noise = 1e-3, 3.0
    process = private(clip, noise, "round.personal=[biases]")
    silent = private(clip, 0.0, "round.personal=[biases]")
    covered = np.asarray(expected_coverage(process.setup)) > 0
    difference = [
        (release(process, cohort) - release(silent, cohort)) / (noise * clip) for cohort in ([0, 1, 2, 3], [2], [])
    ]
    # Equal rounds have equal noise, whoever takes part.
    for each in difference[1:]:
        np.testing.assert_allclose(each, difference[0], atol=1e-9)
    sample = difference[0][covered]
    count = len(sample)
    # Personal values get no noise, and do not use up the clip.
    start = np.concatenate([np.ravel(value) for value in process.initialize().weights.values()])
    assert not covered.all() and np.array_equal(run(process, [0])[~covered], start[~covered])
    assert np.linalg.norm(release(silent, [0])) == pytest.approx(clip, rel=1e-6)
    assert abs(sample.mean()) < 5 / np.sqrt(count)
    assert abs(sample.var() - 1) < 5 * np.sqrt(2 / count)
    assert len({tuple(process.runner.plan(round, []).noise_seeds[0]) for round in (0, 1)}) == 2


def test_noise_in_bands_cancels_in_part(eager):
    """Of rounds without clients: each has its independent noise, less half of the noise of the round before it."""
    releases = {}
    for bands in (1, 2):
        more = ("round.selection=cyclic", "round.clients=2", f"privacy.bands={bands}", "rounds=4")
        process = private(1e-3, 3.0, *more)
        state, rows = process.initialize(), []
        for round in range(4):
            before = np.concatenate([np.ravel(state.weights[path]) for path in process.paths])
            state, _ = process.run(state, [process.plan(round, [])])
            after = np.concatenate([np.ravel(state.weights[path]) for path in process.paths])
            rows.append((after - before) * np.asarray(expected_coverage(process.setup)))
        releases[bands] = rows
    independent, banded = releases[1], releases[2]
    for round in range(4):
        expected = sum((-0.5) ** age * independent[round - age] for age in range(round + 1))
        np.testing.assert_allclose(banded[round], np.sqrt(1.25) * expected, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_an_attacker_finds_a_canary_no_more_often_than_the_bound_allows():
    """The best test for one client, which knows the direction of its change and all others, in 1,000 rounds of each."""
    pytest.importorskip("dp_accounting", reason="needs the extra `privacy`, dp-accounting")
    clip, delta, trials = 0.01, 1e-2, 1000
    for noise, finds in ((1.0, 0.76), (0.1, 1.0)):
        # A step over all examples does not depend on their order, so all rounds have the same changes.
        process = private(clip, noise, "client.batch_size=9", "optimizer.momentum=0")
        silent = private(clip, 0.0, "client.batch_size=9", "optimizer.momentum=0")
        direction = release(silent, [0]) / clip
        start = process.initialize()
        scale = np.asarray(expected_coverage(process.setup)) * direction
        before = np.concatenate([np.ravel(start.weights[path]) for path in process.paths])

        def scores(cohort, first):
            rounds = range(first, first + trials)
            after = [process.run(start, [process.plan(round, cohort)])[0].weights for round in rounds]
            return [scale @ (np.concatenate([np.ravel(w[path]) for path in process.paths]) - before) for w in after]

        members, others = np.asarray([scores([0, 1, 2, 3], 0), scores([1, 2, 3], trials)])
        thresholds = np.concatenate([members, others])
        true, false = ((each[:, None] >= thresholds).mean(0) for each in (members, others))
        # Five standard errors above the rates, since a rare error may not occur at all.
        false += 5 * np.sqrt((false + 1 / trials) / trials)
        bound = np.exp(epsilon(Sampling(4, 4, "poisson"), noise, delta, 1)) * false + delta
        assert (true <= bound + 5 * np.sqrt(0.25 / trials)).all()
        # The attack has its theoretical power: without enough noise it finds the client.
        auc = (members[:, None] > others).mean()
        assert auc == pytest.approx(finds, abs=5 * 0.5 / np.sqrt(trials))


def test_clients_that_diverge_change_nothing_and_are_not_drawn_again(eager):
    """NaN of one client neither enters the sum nor repeats the round, which would be a further query."""
    process = with_update(private(0.01), lambda client: tf.where(client == 0, np.nan, 1.0))
    _, rows, _ = advance(process, process.initialize(), [process.plan(0, [0])])
    assert rows[0]["non_finite"] == 1 and rows[0]["epsilon"] == np.inf
    np.testing.assert_array_equal(release(process, [0, 1]), release(process, [1]))
    assert not release(process, [0]).any()


@pytest.mark.long
def test_rounds_of_any_size_share_one_trace():
    """Poisson cohorts of a compiled run: none to all clients, one trace, and the same rounds again."""
    process = private(1.0, 0.5, "round.clients=2", "rounds=6")
    state, sizes = process.initialize(), []
    for _ in range(6):
        state, row = process.next(state)
        sizes.append(sum(row["levels"].values()))
    assert len(set(sizes)) > 2
    again, _ = process.run(process.initialize(), tiny.plans(process, 6))
    assert tiny.same(flatten_state(again), flatten_state(state))
    assert process.runner.compiled_round.experimental_get_tracing_count() == 1
    empty, rows = process.run(state, [process.plan(6, [])])
    assert rows[0]["loss"] is None and not tiny.same(tiny.arrays(empty), tiny.arrays(state))


@pytest.mark.parametrize("kind", ["sbn", "bn"])
def test_norms_with_statistics_are_refused(kind):
    base = tiny.IMAGES.replace("kind: sbn", f"kind: {kind}")
    assert "are not private; use norms of kind" in refusal(private, 1.0, base=base)
