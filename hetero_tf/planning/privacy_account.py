"""Privacy account of a run: epsilon after each round, the noise that keeps a budget, and the seeds of the noise.

The account needs the package dp-accounting (extra `privacy`), which it imports only when it computes an epsilon.
"""

import dataclasses
import functools
import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from absl import logging

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError, require_modules
from hetero_tf.planning.plan import assign_levels
from hetero_tf.planning.selection import able_clients, count_clients
from hetero_tf.recipe.schema import Privacy, Recipe

# Largest excess of a calibrated noise multiplier over the smallest one.
TOLERANCE = 1e-4
# Step of the values to which privacy losses are rounded up; epsilon is less than 0.001 above that of smaller steps.
LOSS_STEP = 1e-3


@dataclass(frozen=True)
class Sampling:
    """The sampling of the clients of a round.

    Attributes:
        able: Number of clients that may train.
        clients: Number of clients of a round, or its mean.
        kind: "fixed", "poisson" or "cyclic", see `methods.selections`.
    """

    able: int
    clients: int
    kind: str

    @classmethod
    def of(cls, recipe: Recipe, registered: int) -> "Sampling":
        """Return the sampling of a recipe with `registered` clients."""
        able = count_clients(able_clients(recipe.levels, registered, recipe.seed, 0))
        kind = registry.constant("selections", recipe.round.selection.name, "SAMPLING")
        return cls(able, min(recipe.round.clients, able), kind)

    def event(self, accounting: Any, noise: float) -> Any:
        """Return the `DpEvent` of a round; without sampling, of a round in which the client trains.

        The multiplier of an event is relative to the sensitivity of the sum. An added or removed client moves the sum
        by at most the clip; in a cohort of fixed size one change replaces another, which is up to twice the clip.
        """
        if self.kind == "cyclic":
            return accounting.GaussianDpEvent(noise)
        if self.kind == "poisson":
            return accounting.PoissonSampledDpEvent(self.clients / self.able, accounting.GaussianDpEvent(noise))
        return accounting.SampledWithoutReplacementDpEvent(
            self.able, self.clients, accounting.GaussianDpEvent(noise / 2)
        )

    def releases(self, rounds: int) -> int:
        """Return the number of rounds of which a client's share is accounted: without sampling, those it trains in."""
        return -(-rounds * self.clients // self.able) if self.kind == "cyclic" else rounds


def banded_noise(rounds: int, bands: int) -> np.ndarray:
    """Return the weights of independent normal tensors in the noise of a round: float64 [rounds], the newest first.

    They are the rows of the inverse of C, the lower triangular Toeplitz matrix with the first `bands` coefficients of
    (1 - x)^(-1/2), times the norm of a column of C. A client that waits for `bands` rounds meets each column once.

    Reference: Kalinin and Lampert 2024 (arXiv 2405.13763), the banded square root factorization, whose error is a few
    per cent above that of the best banded matrix (Choquette-Choo et al. 2023, arXiv 2306.08153).
    """
    column = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, bands))])
    weights = np.zeros(rounds)
    weights[0] = 1.0
    for row in range(1, rounds):
        earlier = weights[max(row - bands + 1, 0) : row][::-1]
        weights[row] = -column[1 : len(earlier) + 1] @ earlier
    return weights * np.linalg.norm(column)


def expected_clients(recipe: Recipe, registered: int) -> np.ndarray:
    """Return the expected number of clients of each level in a round: float64 [levels], a constant of the recipe."""
    levels, sampling = recipe.levels, Sampling.of(recipe, registered)
    if levels.assignment == "dynamic":
        return np.asarray(list(levels.divided(sampling.clients).values()))
    able = able_clients(levels, registered, recipe.seed, 0)
    ids = np.arange(able) if isinstance(able, int) else able
    assigned = assign_levels(levels, registered, recipe.seed, 0, ids)
    return np.bincount(assigned, minlength=len(levels.names)) * sampling.clients / sampling.able


@functools.cache
def _losses(sampling: Sampling, noise: float) -> Any:
    """Return the distribution of dp-accounting of the privacy loss of one round."""
    from dp_accounting.pld import privacy_loss_distribution

    rate = sampling.clients / sampling.able if sampling.kind == "poisson" else 1.0
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=LOSS_STEP
    )


@functools.cache
def _divergences(sampling: Sampling, noise: float) -> Any:
    """Return the accountant of dp-accounting of the Renyi divergences of one round."""
    import dp_accounting as accounting
    from dp_accounting import rdp

    relation = accounting.NeighboringRelation
    relation = relation.REPLACE_ONE if sampling.kind == "fixed" else relation.ADD_OR_REMOVE_ONE
    # The bound is valid without the orders whose series do not converge, of which the accountant warns.
    level = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        return rdp.RdpAccountant(neighboring_relation=relation).compose(sampling.event(accounting, noise))
    finally:
        logging.set_verbosity(level)


def epsilon(sampling: Sampling, noise: float, delta: float, rounds: int, accountant: str = "rdp") -> float:
    """Return the epsilon of some rounds; infinity without noise.

    Args:
        noise: Standard deviation of the noise in a sum as a multiple of the clip.
        accountant: "rdp", or "pld" for sampling that is not "fixed".

    References: Mironov, Talwar, Zhang 2019 (arXiv 1908.10530) for Poisson sampling; Wang, Balle, Kasiviswanathan 2019
    (arXiv 1808.00087) for cohorts of fixed size, where one client is replaced; Doroshenko et al. 2022
    (arXiv 2207.04380) for privacy loss distributions.
    """
    if noise == 0:
        return float("inf")
    require_modules("privacy", ["dp_accounting"], "privacy")
    from dp_accounting import rdp

    releases = sampling.releases(rounds)
    if accountant == "pld":
        return float(_losses(sampling, noise).self_compose(releases).get_epsilon_for_delta(delta)) if releases else 0.0
    one = _divergences(sampling, noise)
    # The Renyi divergences of rounds add up. To compose rounds would compute them again for every number of rounds.
    return float(rdp.compute_epsilon(one._orders, releases * one._rdp, delta)[0])


@functools.cache
def calibrate(sampling: Sampling, budget: float, delta: float, rounds: int, accountant: str = "rdp") -> float:
    """Return the smallest noise, up to `TOLERANCE`, with which some rounds keep a budget of epsilon."""
    low, high = 0.0, 1.0
    while epsilon(sampling, high, delta, rounds, accountant) > budget:
        low, high = high, 2 * high
        if high > 2**40:
            raise InputError(f"privacy.epsilon: no noise keeps it at delta {delta:g}. Received: {budget:g}")
    while high - low > TOLERANCE * high:
        middle = (low + high) / 2
        exceeds = epsilon(sampling, middle, delta, rounds, accountant) > budget
        low, high = (middle, high) if exceeds else (low, middle)
    return high


@dataclass(frozen=True)
class PrivacyAccount:
    """The privacy of a run.

    Attributes:
        sampling: The sampling of its rounds.
        noise: Standard deviation of the noise in a sum as a multiple of the clip.
        key: Secret bytes that determine the noise and the cohorts.
    """

    settings: Privacy
    sampling: Sampling
    noise: float
    key: bytes

    @classmethod
    def of(cls, recipe: Recipe, registered: int) -> "PrivacyAccount":
        """Build the account of a new run of a recipe.

        Raises:
            InputError: The package dp-accounting is missing, no noise keeps the budget, or clients train again before
                the noise of their last round has ended.
        """
        settings, sampling = recipe.privacy, Sampling.of(recipe, registered)
        assert settings is not None
        waits = sampling.able // sampling.clients
        if settings.bands > waits:
            raise InputError(
                f"privacy.bands: must be at most {waits}, after which a client trains again ({sampling.able} clients, "
                f"{sampling.clients} in each round). Received: {settings.bands}"
            )
        noise = settings.noise
        if noise is None:
            noise = calibrate(sampling, settings.epsilon, settings.delta, recipe.rounds, settings.accountant)
        key = os.urandom(32) if settings.seed is None else hashlib.blake2b(str(settings.seed).encode()).digest()
        return cls(settings, sampling, noise, key)

    def epsilon(self, rounds: int) -> float:
        """Return the epsilon after some rounds."""
        return epsilon(self.sampling, self.noise, self.settings.delta, rounds, self.settings.accountant)

    def check_rounds(self, rounds: int) -> None:
        """Raise `InputError` if the budget does not allow some rounds."""
        budget = self.settings.epsilon
        if budget is None or self.epsilon(rounds) <= budget:
            return
        low, high = 0, rounds
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.epsilon(middle) > budget else (middle, high)
        raise InputError(
            f"privacy: the budget epsilon {budget:g} is spent after {low} rounds at noise {self.noise:.4g}; train no "
            f"more, or start a new run with more noise. Received: rounds={rounds}"
        )

    def describe(self, rounds: int) -> str:
        """Return the privacy after some rounds, with the neighbouring relation and the accounting."""
        sampling, settings = self.sampling, self.settings
        relation = "one client added or removed, Poisson sampling"
        if sampling.kind == "fixed":
            relation = f"one client replaced, {sampling.clients} of {sampling.able} clients without replacement"
        elif sampling.kind == "cyclic":
            relation = f"one client added or removed, which trains in {sampling.releases(rounds)} rounds"
        return (
            f"privacy: epsilon {self.epsilon(rounds):.4g} at delta {settings.delta:g} after {rounds} rounds "
            f"({relation}; {settings.accountant.upper()}), noise {self.noise:.4g} x clip {settings.clip:g}"
            + (f" in {settings.bands} bands" if settings.bands > 1 else "")
        )

    def noise_of(self, round: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `noise_seeds` and `noise_stds` of the plan of a round, see `planning.plan.Plan`.

        The seeds are keyed hashes of the numbers of this round and, with bands, of all earlier ones.
        """
        count = 1 if self.settings.bands == 1 else round + 1
        seeds = np.stack([np.frombuffer(self._digest(b"noise", round - age), "<i8") for age in range(count)])
        return seeds, banded_noise(count, self.settings.bands) * self.noise * self.settings.clip

    @property
    def cohort_seed(self) -> int:
        """Seed of the selections: an observer who knew the cohorts would lose the benefit of the sampling."""
        return int.from_bytes(self._digest(b"cohorts", 0), "little")

    def _digest(self, purpose, number):
        return hashlib.blake2b(number.to_bytes(8, "little"), key=self.key[:64], digest_size=16, person=purpose).digest()

    def resumed(self, key: bytes, noise: float) -> "PrivacyAccount":
        """Return the account with the key and the noise of the run so far."""
        return dataclasses.replace(self, key=key, noise=noise)
