"""The account of private runs: reference vectors, budgets, expected clients; and the recipes that privacy refuses."""

import functools
import importlib.util
import math
import statistics

import numpy as np
import pytest
from bad_recipes import BASE
from refusals import refusal

from hetero_tf import recipe
from hetero_tf.methods.selections import cyclic, poisson
from hetero_tf.planning.privacy_account import (
    PrivacyAccount,
    Sampling,
    banded_noise,
    calibrate,
    epsilon,
    expected_clients,
)
from hetero_tf.planning.selection import pool_of
from hetero_tf.recipe.key_rules import NOT_PRIVATE

accounting = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None, reason="needs the extra `privacy`, dp-accounting"
)
PRIVATE = BASE.replace("norm: sbn", "norm: ln").replace("{clients: 5,", "{clients: 5, label_rows: all,")
PRIVACY = "privacy={clip: 1.0, noise: 2.0, seed: 1}"
# Sampling rate, noise per sensitivity, rounds, delta, clients; epsilon with Poisson sampling by RDP and by PLD (losses
# in steps of 0.0001), and with fixed cohorts. Computed with dp-accounting 0.6.0.
VECTORS = [
    (0.1, 1.0, 200, 1e-5, 100, 11.063104, 9.971275, 20.714490),
    (0.1, 2.0, 200, 1e-5, 100, 3.679746, 3.359661, 7.951261),
    (0.1, 4.0, 400, 1e-3, 100, 1.603098, 1.396359, 3.671332),
    (0.01, 0.8, 1000, 1e-6, 10_000, 4.293457, 3.706190, 6.124095),
    (0.001, 0.6, 2000, 1e-7, 1_000_000, 3.919279, 3.045460, 4.796827),
]


def private(*overrides):
    return recipe.loads(PRIVATE, "r.yaml", (PRIVACY, *overrides))


@accounting
@pytest.mark.parametrize("rate, noise, rounds, delta, clients, of_poisson, of_losses, of_fixed", VECTORS)
def test_epsilon_equals_the_vectors(rate, noise, rounds, delta, clients, of_poisson, of_losses, of_fixed):
    """A fixed cohort moves the sum by two clips, so the same noise per sensitivity is twice the noise per clip."""
    cohort = round(rate * clients)
    assert epsilon(Sampling(clients, cohort, "poisson"), noise, delta, rounds) == pytest.approx(of_poisson, abs=1e-6)
    assert epsilon(Sampling(clients, cohort, "fixed"), 2 * noise, delta, rounds) == pytest.approx(of_fixed, abs=1e-6)
    # Losses are rounded up.
    by_losses = epsilon(Sampling(clients, cohort, "poisson"), noise, delta, rounds, "pld")
    assert of_losses - 1e-6 <= by_losses <= of_losses + 1e-3


def exact_epsilon(noise, sensitivity, delta):
    """Epsilon of one Gaussian mechanism without sampling (Balle and Wang 2018, arXiv 1805.06530, theorem 8)."""
    mu, normal = sensitivity / noise, statistics.NormalDist().cdf
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        exceeds = normal(mu / 2 - middle / mu) - math.exp(middle) * normal(-mu / 2 - middle / mu) > delta
        low, high = (middle, high) if exceeds else (low, middle)
    return high


@accounting
@pytest.mark.parametrize("noise", [1.0, 3.0, 10.0])
def test_full_participation_is_no_better_than_the_exact_mechanism(noise):
    """A replaced client moves the sum by 2 clips, an added one by 1; a bound below the exact value would be false."""
    for kind, sensitivity, rounds in (("fixed", 2.0, 1), ("poisson", 1.0, 1), ("cyclic", 3**0.5, 3)):
        exact = exact_epsilon(noise, sensitivity, 1e-5)
        assert exact <= epsilon(Sampling(50, 50, kind), noise, 1e-5, rounds) <= 1.25 * exact
        if kind != "fixed":
            by_losses = epsilon(Sampling(50, 50, kind), noise, 1e-5, rounds, "pld")
            assert by_losses == pytest.approx(exact, abs=2e-3)


@accounting
def test_without_sampling_only_the_rounds_of_a_client_count():
    ten_of_100 = [epsilon(Sampling(100, 10, "cyclic"), 2.0, 1e-5, rounds) for rounds in (1, 10, 11, 60)]
    every_round = [epsilon(Sampling(10, 10, "cyclic"), 2.0, 1e-5, rounds) for rounds in (1, 1, 2, 6)]
    assert ten_of_100 == every_round


# Rounds, bands, and the error of the best banded matrix, from the factorization of google-research/federated.
@pytest.mark.parametrize("rounds, bands, best", [(8, 3, 20.5422), (16, 4, 57.9362)])
def test_banded_noise_is_the_inverse_of_a_matrix_whose_columns_a_client_meets_once(rounds, bands, best):
    """The columns of a client's rounds have disjoint rows, so that each of them moves the sum by one clip."""
    inverse = np.array([[*banded_noise(row + 1, bands)[::-1], *np.zeros(rounds - row - 1)] for row in range(rounds)])
    matrix = np.linalg.inv(inverse)
    assert np.linalg.norm(matrix, axis=0).max() == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(np.tril(matrix, -bands), 0, atol=1e-12)
    error = np.sum((np.tril(np.ones((rounds, rounds))) @ inverse) ** 2)
    assert best <= error <= 1.05 * best < rounds * (rounds + 1) / 2
    assert banded_noise(3, 1).tolist() == [1, 0, 0]


def test_cyclic_clients_wait_for_all_others():
    """Also if the number of clients is no multiple of the cohort."""
    order = np.concatenate([cyclic.choose(pool_of(10, round), 4, np.random.default_rng(round)) for round in range(10)])
    assert all(len(set(order[start : start + 10])) == 10 for start in range(30))
    assert sorted(order[:10]) != order[:10].tolist()


@accounting
def test_bands_end_before_a_client_trains_again():
    bands = ("privacy.bands=2", "round.selection=cyclic")
    assert "which trains in 3 rounds; RDP), noise 2 x clip 1 in 2 bands" in PrivacyAccount.of(
        private(*bands), 10
    ).describe(5)
    text = refusal(PrivacyAccount.of, private(*bands), 9)
    assert text.startswith("privacy.bands: must be at most 1, after which a client trains again (9 clients, 5 in each")
    assert "accountants of sampled clients know independent noise only" in refusal(private, "privacy.bands=2")


@accounting
@pytest.mark.parametrize("kind", ["fixed", "poisson"])
def test_the_noise_of_a_budget_is_the_smallest(kind):
    sampling = Sampling(100, 10, kind)
    noise = calibrate(sampling, 8.0, 1e-5, 50)
    assert epsilon(sampling, noise, 1e-5, 50) <= 8 < epsilon(sampling, noise * 0.999, 1e-5, 50)


@pytest.mark.long
@accounting
def test_a_spent_budget_allows_no_round():
    account = PrivacyAccount.of(private("privacy.noise=null", "privacy.epsilon=8", "rounds=20"), 10)
    account.check_rounds(20)
    assert account.epsilon(20) <= 8 < account.epsilon(21)
    text = refusal(account.check_rounds, 30)
    assert "the budget epsilon 8 is spent after 20 rounds" in text and text.endswith("Received: rounds=30")
    assert "one client replaced, 5 of 10 clients without replacement" in account.describe(20)
    sampled = PrivacyAccount.of(private("round.selection=poisson"), 10)
    assert "one client added or removed, Poisson sampling; RDP" in sampled.describe(2)
    assert "is spent after 0 rounds" in refusal(PrivacyAccount.of(private("privacy.epsilon=0.1"), 10).check_rounds, 1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text = refusal(epsilon, Sampling(7, 3, "fixed"), 1.5, 1e-5, 3)
    assert text == "privacy needs dp_accounting, which is not installed; pip install 'hetero_tf[privacy]'"


def test_seeds_of_noise_are_a_function_of_the_key_and_the_round():
    account, other = (PrivacyAccount.of(private(f"privacy.seed={seed}"), 10) for seed in (1, 2))
    seeds = [tuple(each.noise_of(round)[0][0]) for each in (account, other) for round in range(50)]
    assert len(set(seeds)) == 100 and account.cohort_seed != other.cohort_seed
    assert seeds[:50] == [tuple(PrivacyAccount.of(private(), 10).noise_of(round)[0][0]) for round in range(50)]
    # Without a seed each account draws a key.
    keys = {PrivacyAccount.of(private("privacy.seed=null"), 10).key for _ in range(5)}
    assert len(keys) == 5 and {len(key) for key in keys} == {32}


def test_expected_clients_are_those_of_the_mix():
    """9 of 10 clients have level e; a dynamic level is drawn with the same shares; idle clients do not count."""
    for assignment in ("fixed", "dynamic"):
        np.testing.assert_allclose(expected_clients(private(f"levels.assignment={assignment}"), 10), [0.5, 4.5])
    # 12 clients: the remaining two have the last level.
    np.testing.assert_allclose(expected_clients(private("levels.assignment=fixed"), 12), np.array([1, 11]) * 5 / 12)
    idle = private("levels.assignment=fixed", "levels.mix=a1-c4-e5", "levels.idle=[e]")
    np.testing.assert_allclose(expected_clients(idle, 10), [1, 4, 0])


def test_poisson_cohorts_are_independent_draws():
    """Rates of clients and of pairs, and the variance of the size, within five standard errors of their values."""
    able, count, rounds = np.arange(3, 33, 3), 4, 4000
    drawn = np.zeros((rounds, 33), bool)
    for round in range(rounds):
        drawn[round, poisson.choose(pool_of(able, round), count, np.random.default_rng(round))] = True
    rate, drawn = count / len(able), drawn[:, able]
    pairs = (drawn.T.astype(float) @ drawn / rounds)[~np.eye(len(able), dtype=bool)]
    np.testing.assert_allclose(drawn.mean(0), rate, atol=5 * math.sqrt(rate * (1 - rate) / rounds))
    np.testing.assert_allclose(pairs, rate**2, atol=5 * math.sqrt(rate**2 * (1 - rate**2) / rounds))
    variance = len(able) * rate * (1 - rate)
    assert drawn.sum(1).var() == pytest.approx(variance, rel=5 * math.sqrt(2 / rounds))
    assert drawn.sum(1).min() == 0


# A recipe that each rule refuses.
REFUSED = {
    "round.label_rows": ("round.label_rows=own",),
    "round.weighting": ("round.weighting=samples",),
    "round.selection.SAMPLING": ("fleet=phones", "round.selection=oort"),
    "round.policy": ("fleet=phones", "round.policy={name: over_selection, factor: 1.5}"),
    "round.submodel": ("round.submodel=rolling",),
    "round.mask": ("round.mask=fiarse", "levels.widths={a: 1, e: 1}", "levels.entries={e: 0.5}"),
    "round.uncovered": ("round.uncovered=zeros",),
    "round.untrained": ("round.untrained=counted",),
    "round.merge": ("round.merge=median",),
    "round.adapters.PRODUCTS": ("round.adapters=products",),
    "levels.members": ("levels.members={a: 3, e: 1}", "levels.widths={a: 0.25, e: 0.25}"),
    "client.correction.REMEMBERS": ("client.correction=scaffold", "round.server=scaffold"),
    "client.loss.class_weights": ("client.loss={name: masked_cross_entropy, class_weights: balanced}",),
    "partition.held_out": ("partition.held_out=0.2",),
}


@pytest.mark.parametrize("reason", NOT_PRIVATE)
def test_what_is_not_covered_is_refused(reason):
    (key,) = NOT_PRIVATE[reason]
    text = refusal(private, *REFUSED[key])
    assert f"cannot be combined with privacy.clip 1.0: {reason}. Received: " in text
    # The same recipe without privacy has no such refusal.
    try:
        recipe.loads(PRIVATE, "r.yaml", REFUSED[key])
    except Exception as problem:
        assert reason not in str(problem)


@pytest.mark.parametrize("selection", ["{name: power_of_choice, candidates: 8}", "available", "in_time"])
def test_selections_without_an_account_are_refused(selection):
    assert "no accountant knows" in refusal(private, "fleet=phones", f"round.selection={selection}")


@pytest.mark.parametrize(
    "overrides, expected",
    [
        (["privacy={clip: 1.0}"], "privacy: set noise, epsilon or both. Received: {clip: 1.0}"),
        (["privacy={noise: 1.0}"], "the key 'clip' is missing"),
        ([PRIVACY, "privacy.delta=0"], "privacy.delta"),
        ([PRIVACY, "round.personal=[all]"], "has no effect because all units are personal and nothing is merged"),
    ],
)
def test_wrong_keys_are_named(overrides, expected):
    assert expected in refusal(functools.partial(recipe.loads, PRIVATE, "r.yaml"), overrides)
