"""Oort: clients with high losses that are fast enough train again, and some that never trained are tried.

Differences from the authors' code, whose cases they define: it raises an error if no client has returned yet, if every
client with a score is chosen, or if all rewards are 0; here the cohort is then filled up at random.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from hetero_tf.base.constraints import Epsilon, Positive, Probability, Range, SmallCount
from hetero_tf.methods.selections import Choice, ClientPool

READS_HISTORY = True
MEMORY = {
    "exploration": "run",
    "round_threshold": "run",
    "window_utility": "run",
    "previous_utility": "run",
    "exploited": "clients",
}
Percentile = Annotated[float, Range(above=0.0, high=100.0)]
# Smallest divisors of the authors' code.
EPSILON, TINY = 1e-4, 1e-300
# Changes of the utility that raise and lower the round threshold.
STEADY, JUMP = 0.1, 5.0


def choose(
    pool: ClientPool,
    count: int,
    rng: np.random.Generator,
    *,
    exploration: Probability = 0.9,
    exploration_decay: Epsilon = 0.95,
    exploration_min: Probability = 0.2,
    round_threshold: Percentile = 10.0,
    round_penalty: Positive = 2.0,
    sample_window: Annotated[float, Range(low=1.0, high=1e6)] = 5.0,
    pacer_step: SmallCount = 20,
    pacer_delta: Percentile = 5.0,
    clip_bound: Epsilon = 0.98,
    cut_off: Probability = 0.7,
    rule: Literal["oort", "fedscale"] = "oort",
    filled_utility: bool = False,
) -> Choice:
    """Choose clients by their score, and clients that never returned by their number of examples.

    The reward of a client is its number of examples times the root of its mean squared loss over local steps; before
    its first result, its number of examples. Losses of levels of different widths are compared as they are.

    Args:
        exploration: share of a cohort that never returned, before the first decay
        exploration_decay: factor of this share after each round
        exploration_min: smallest share, until all clients have returned
        round_threshold: percentile of all clients' durations above which a client is slow; 100: none is
        round_penalty: exponent of the penalty (threshold / duration) of slow clients
        sample_window: candidates that never returned, as a multiple of those to be drawn
        pacer_step: rounds after which the threshold may change
        pacer_delta: percentage points by which it changes
        clip_bound: quantile at which rewards are clipped
        cut_off: share of the score of the first client below the cohort that candidates need
        rule: candidates with a high score: oort, all above the cut-off; fedscale, also those of the next scores, until
            ten times the clients to be drawn, and another rounding of their number
        filled_utility: whether clients that fill up a cohort after all clients have returned count for the pacer, as
            in the authors' code

    Reference: Lai et al. 2021 (arXiv 2010.06081), and the authors' code.
    """
    seen, rewards, seconds = _results(pool)
    first = {"exploration": exploration, "round_threshold": round_threshold}
    memory = {**pool.memory, **({} if pool.memory["round_threshold"] else first)}
    if seen.any():
        memory = pace(memory, exploited_utility(pool, rewards), pool.round, pacer_step, pacer_delta)
        memory["exploration"] = decay(memory["exploration"], exploration_decay, exploration_min)
    limit, able = preferred_seconds(seconds, memory["round_threshold"]), pool.ids
    penalties = np.where(seconds > limit, limit / np.maximum(seconds, TINY), 1.0) ** round_penalty
    scores = score(pool, reward_range(rewards[able], clip_bound), rewards, penalties)
    exploiting = exploit_count(count, memory["exploration"], int(seen[able].sum()), rule)
    exploited = _draw(rng, exploit_pool(scores, exploiting, cut_off, rule)[0], scores, exploiting)
    new, gains = able[~seen[able]], rewards * penalties
    exploring = min(len(new), count - exploiting)
    explored = _draw(rng, explore_pool(new, gains, exploring, sample_window), gains, exploring)
    ids = np.concatenate([exploited, explored] if rule == "oort" else [explored, exploited])
    others = np.setdiff1d(able, ids)
    filled = rng.choice(others, min(count - len(ids), len(others)), replace=False)
    counted = np.concatenate([exploited, filled]) if filled_utility and seen.all() else exploited
    memory["exploited"] = np.isin(np.arange(len(seen)), counted).astype(float)
    if seen.all() and rule == "oort":
        memory["exploration"] = 0.0
    return Choice(np.concatenate([ids, filled]), memory=memory)


def _results(pool):
    """Return which clients have returned, and their rewards and seconds, expected ones for the others."""
    seen, everyone = pool.history["count"] > 0, np.arange(len(pool.history["count"]))
    examples = pool.examples_of(everyone)
    rewards = np.where(seen, reward(pool.history["squared_loss"], examples), examples)
    return seen, rewards, np.where(seen, pool.history["seconds"], pool.seconds_of(everyone))


def reward(squared_loss: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """Return the rewards of clients by their mean squared loss and their number of trained examples."""
    return np.sqrt(squared_loss) * examples


def decay(exploration: float, factor: float, least: float) -> float:
    """Return the share of new clients in the next cohort; it stays 0 after all clients have returned."""
    return max(exploration * factor, least) if exploration else 0.0


def exploited_utility(pool: ClientPool, rewards: np.ndarray) -> float:
    """Return the mean reward of the clients that the last choice exploited and that returned."""
    returned = (pool.memory["exploited"] > 0) & (pool.history["round"] == pool.round)
    return float(rewards[returned].sum() / (EPSILON + np.count_nonzero(returned)))


def pace(memory: Mapping, utility: float, round: int, step: int, delta: float) -> dict:
    """Return the memory after the utility of a round: every `step` rounds the round threshold may change.

    A steady utility raises the threshold by `delta`, which admits slower clients; a jump lowers it.

    Args:
        memory: See `MEMORY`; "window_utility" sums up the rounds since the last multiple of `step`.
        utility: Result of `exploited_utility`.
        round: Number of finished rounds.
        step, delta: `pacer_step` and `pacer_delta`.
    """
    window, previous, threshold = (
        memory["window_utility"] + utility,
        memory["previous_utility"],
        memory["round_threshold"],
    )
    if round % step:
        return {**memory, "window_utility": window}
    if round >= 2 * step:
        change = abs(window - previous)
        if change <= STEADY * previous:
            threshold = min(100.0, threshold + delta)
        elif change >= JUMP * previous:
            threshold = max(delta, threshold - delta)
    return {**memory, "window_utility": 0.0, "previous_utility": window, "round_threshold": threshold}


def preferred_seconds(seconds: np.ndarray, round_threshold: float) -> float:
    """Return the duration above which a client is slow, a percentile of the durations of all clients."""
    if round_threshold >= 100:
        return np.inf
    return float(np.sort(seconds)[min(int(len(seconds) * round_threshold / 100), len(seconds) - 1)])


@dataclass(frozen=True)
class RewardRange:
    """Range of the rewards of able clients: the smallest one, the one at which they are clipped, and their span."""

    least: float
    clip: float
    span: float


def reward_range(rewards: np.ndarray, clip_bound: float) -> RewardRange:
    """Return the range of positive rewards; `clip_bound` is the quantile at which they are clipped."""
    ordered = np.sort(rewards[rewards > 0])
    if not ordered.size:
        return RewardRange(0.0, 0.0, EPSILON)
    # Slightly less than the smallest, so that its score is not 0.
    least = 0.999 * ordered[0]
    clip = ordered[min(int(len(ordered) * clip_bound), len(ordered) - 1)]
    return RewardRange(float(least), float(clip), float(max(ordered[-1] - least, EPSILON)))


def score(pool: ClientPool, limits: RewardRange, rewards: np.ndarray, penalties: np.ndarray) -> np.ndarray:
    """Return the scores of able clients that have returned, NaN for the others: float64 [registered].

    A score is the clipped reward in 0..1 plus a bonus for clients that returned long ago, times the penalty.
    """
    scores, last = np.full(len(rewards), np.nan), pool.history["round"]
    ids = pool.ids[pool.history["count"][pool.ids] > 0]
    bonus = np.sqrt(0.1 * np.log(pool.round) / last[ids]) if ids.size else 0.0
    scores[ids] = ((np.minimum(rewards[ids], limits.clip) - limits.least) / limits.span + bonus) * penalties[ids]
    return np.maximum(scores, 0.0)


def exploit_count(count: int, exploration: float, scored: int, rule: str) -> int:
    """Return the number of clients of a cohort that are drawn by their scores."""
    wanted = int(count * (1 - exploration)) if rule == "oort" else count - int(count * exploration)
    return min(wanted, scored)


def exploit_pool(scores: np.ndarray, count: int, cut_off: float, rule: str) -> tuple[np.ndarray, float]:
    """Return the candidates with a high score, highest first, and the score that they need.

    Args:
        scores: Result of `score`.
        count: Number of clients to be drawn.
        cut_off, rule: Options of `choose`.
    """
    scored = np.flatnonzero(~np.isnan(scores))
    if not scored.size:
        return scored, np.nan
    order = scored[np.argsort(-scores[scored], kind="stable")]
    cut = float(scores[order[min(count, len(order) - 1)]] * cut_off)
    low = np.flatnonzero(scores[order] < cut)
    low = low if rule == "oort" else low[low > 10 * count]
    return order[: low[0]] if low.size else order, cut


def explore_pool(ids: np.ndarray, gains: np.ndarray, count: int, window: float) -> np.ndarray:
    """Return the `window * count` of some clients with the highest gains, highest first; gains: [registered]."""
    return ids[np.argsort(-gains[ids], kind="stable")][: int(window * count)]


def _draw(rng, ids, weights, count):
    """Draw ids without replacement, in proportion to their weights [registered]; fewer if fewer are positive."""
    drawn = min(count, np.count_nonzero(weights[ids]))
    return rng.choice(ids, drawn, replace=False, p=weights[ids] / weights[ids].sum()) if drawn else ids[:0]
