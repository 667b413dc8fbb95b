"""Replays recorded selections of clients: Oort, FedScale's version, power of choice.

Every selection is compared from its recorded history, with all intermediate values; then all selections are made in
sequence with the recorded generators, and their ids must be equal.
"""

import dataclasses
import random

import numpy as np
from recorded_file import File

from hetero_tf.methods.selections import oort, power_of_choice
from hetero_tf.planning import selection

# Names of the recorded options that differ from those of hetero_tf; the recorded programs do not use the others.
OPTIONS = {"exploration_factor": "exploration", "cut_off_util": "cut_off"}
UNUSED = ("exploration_alpha", "blacklist_rounds", "blacklist_max_len")


# Recorded values of each selection that are inputs of the comparison or its results.
STEPS = (
    *("cur_time", "unseen", "exploration", "round_threshold", "prefer_duration", "clip", "min_reward", "range_reward"),
    *("scores", "exploit_len", "cut_off", "exploit_pool", "exploit_probability"),
    *("explore_pool", "explore_probability"),
)


class RecordedDraws:
    """The two generators of the recorded programs in the form of NumPy's: one draws, the other fills up."""

    def __init__(self, seed):
        self.weighted, self.uniform, self.able, self.tries = np.random.RandomState(seed), random.Random(seed), [], 0

    def choice(self, ids, count, replace, p=None):
        if p is not None:
            return self.weighted.choice(ids, count, replace=replace, p=p)
        chosen = []
        while len(chosen) < count:
            # The recorded program draws from all able clients and ignores repetitions.
            client, self.tries = self.uniform.choice(self.able), self.tries + 1
            if client in ids and client not in chosen:
                chosen.append(client)
        return np.asarray(chosen, int)


def gap(actual, expected):
    """Largest relative difference; infinite for other shapes or other missing values."""
    actual, expected = np.asarray(actual, float), np.asarray(expected, float)
    if actual.shape != expected.shape or (np.isnan(actual) != np.isnan(expected)).any():
        return np.inf
    same = (actual == expected) | np.isnan(expected)
    scale = np.maximum(np.abs(expected[~same]), 1e-300)
    return float(np.max(np.abs(actual[~same] - expected[~same]) / scale, initial=0.0))


def ids_of(row):
    """The ids of a row that is padded with -1."""
    return row[row >= 0]


def oort_options(meta):
    """The options of `oort.choose` that the recorded arguments mean."""
    if meta["arguments"]["blacklist_rounds"] > 0:
        raise ValueError("hetero_tf has no list of excluded clients (blacklist_rounds)")
    options = {OPTIONS.get(name, name): value for name, value in meta["arguments"].items() if name not in UNUSED}
    return {**options, "rule": meta["kind"], "filled_utility": True}


def pool_of(arrays, t, memory=None):
    """The `ClientPool` of selection t, counted from 1; its examples and losses give the recorded rewards."""
    rewards, seconds, rounds, counts = arrays["round/history"][t - 1].T
    registered, able = arrays["registered_reward"], np.flatnonzero(arrays["feasible"][t])
    history = {"squared_loss": (rewards / registered) ** 2, "seconds": seconds, "round": rounds, "count": counts}
    return dataclasses.replace(
        selection.pool_of(able, t),
        examples_of=registered.__getitem__,
        seconds_of=lambda ids: arrays["duration"][0][ids],
        history=history,
        memory=memory or {},
    )


def replay(path, method, **runs):
    """Replay one file: (stage, largest difference, tolerance, detail) of every stage; every array must be compared."""
    file = File(path)
    stages = (replay_power_of_choice if method == "power_of_choice" else replay_oort)(file.meta, file.arrays)
    unread = file.unread()
    return [*stages, ("arrays that were not compared", len(unread), 0.0, *unread)]


def replay_oort(meta, arrays):
    """Replay a file of Oort or of FedScale."""
    options, gaps = oort_options(meta), {}
    examples = np.minimum(arrays["size"], meta["steps"] * meta["batch"])
    gaps["reward"] = gap(oort.reward(arrays["mean_squared_loss"], examples), arrays["reward"])
    for t in range(1, meta["selections"] + 1):
        for name, value in _steps_of(arrays, t, options, meta["choose"]).items():
            gaps[name] = max(gaps.get(name, 0.0), gap(*value))
    stages = [(name, value, 1e-12, f"{meta['selections']} selections") for name, value in gaps.items()]
    return [*stages, *_replay_pacer(meta, arrays, options), *_replay_in_sequence(meta, arrays, options)]


def _steps_of(arrays, t, options, count):
    """`{name: (actual, recorded)}` of one selection from its recorded history."""
    recorded = {name: arrays[f"round/{name}"][t - 1] for name in STEPS}
    pool, exploration = pool_of(arrays, t), recorded["exploration"]
    rewards, seconds, _, counts = arrays["round/history"][t - 1].T
    seen = counts > 0
    seconds = np.where(seen, seconds, arrays["duration"][0])
    if not recorded["unseen"].any() and options["rule"] == "oort":
        # The recorded value is 0 from this selection on; the selection itself uses the value before, decayed.
        before = arrays["round/exploration"][t - 2] if t > 1 else options["exploration"]
        exploration = oort.decay(before, options["exploration_decay"], options["exploration_min"])
    limit = oort.preferred_seconds(seconds, recorded["round_threshold"])
    penalties = np.where(seconds > limit, limit / seconds, 1.0) ** options["round_penalty"]
    limits = oort.reward_range(rewards[pool.ids], options["clip_bound"])
    scores = oort.score(pool, limits, rewards, penalties)
    exploiting = oort.exploit_count(count, exploration, np.count_nonzero(seen[pool.ids]), options["rule"])
    exploit_ids, cut = oort.exploit_pool(scores, exploiting, options["cut_off"], options["rule"])
    new, gains = pool.ids[~seen[pool.ids]], rewards * penalties
    explore_ids = oort.explore_pool(new, gains, min(len(new), count - exploiting), options["sample_window"])
    return {
        "cur_time": (t, recorded["cur_time"]),
        "unseen": (~seen, recorded["unseen"]),
        "prefer_duration": (limit, recorded["prefer_duration"]),
        "clip": (limits.clip, recorded["clip"]),
        "min_reward": (limits.least, recorded["min_reward"]),
        "range_reward": (limits.span, recorded["range_reward"]),
        "scores": (scores, recorded["scores"]),
        "exploit_len": (exploiting, recorded["exploit_len"]),
        "cut_off": (cut, recorded["cut_off"]),
        "exploit_pool": (exploit_ids, ids_of(recorded["exploit_pool"])),
        "exploit_probability": (_shares(scores, exploit_ids), recorded["exploit_probability"]),
        "explore_pool": (explore_ids, ids_of(recorded["explore_pool"])),
        "explore_probability": (_shares(gains, explore_ids), recorded["explore_probability"]),
    }


def _shares(weights, ids):
    """Probabilities of the first draw, by client."""
    shares = np.zeros(len(weights))
    shares[ids] = weights[ids] / weights[ids].sum() if len(ids) else 0
    return shares


def _replay_pacer(meta, arrays, options):
    """Stages of the thresholds and utilities, each from the recorded choice before."""
    memory = {"window_utility": 0.0, "previous_utility": 0.0, "round_threshold": options["round_threshold"]}
    gaps = dict.fromkeys(("exploit_util", "explore_util", "round_threshold", "exploration"), 0.0)
    exploration, drawn = options["exploration"], {"exploit": [], "explore": []}
    for t in range(1, meta["selections"] + 1):
        rewards, all_seen = arrays["round/history"][t - 1][:, 0], t > 1 and not arrays["round/unseen"][t - 2].any()
        for name in drawn:
            ids = ids_of(arrays[f"round/{name}_drawn"][t - 2]) if t > 1 else []
            if name == "exploit" and all_seen and options["rule"] == "oort":
                ids = arrays["chosen"][t - 1]
            # The recorded programs keep the list of the last exploration.
            drawn[name] = ids if name == "exploit" or len(ids) else drawn[name]
            mask = np.isin(np.arange(meta["clients"]), drawn[name])
            utility = oort.exploited_utility(pool_of(arrays, t, {"exploited": mask}), rewards)
            gaps[f"{name}_util"] = max(gaps[f"{name}_util"], gap(utility, arrays[f"round/{name}_util"][t - 1]))
            if name == "exploit":
                memory = oort.pace(memory, utility, t, options["pacer_step"], options["pacer_delta"])
        threshold = memory["round_threshold"]
        gaps["round_threshold"] = max(gaps["round_threshold"], gap(threshold, arrays["round/round_threshold"][t - 1]))
        exploration = oort.decay(exploration, options["exploration_decay"], options["exploration_min"])
        if options["rule"] == "oort" and not arrays["round/unseen"][t - 1].any():
            exploration = 0.0
        gaps["exploration"] = max(gaps["exploration"], gap(exploration, arrays["round/exploration"][t - 1]))
    return [(name, value, 1e-12, f"{meta['selections']} selections") for name, value in gaps.items()]


def _replay_in_sequence(meta, arrays, options):
    """Stages of the ids, with the recorded generators, up to the first cohort of a wrong size or with repetitions."""
    draws = RecordedDraws(meta["seed"])
    memory = {name: 0.0 if form == "run" else np.zeros(meta["clients"]) for name, form in oort.MEMORY.items()}
    wrong, tries, compared, utilities = 0, 0, 0, 0.0
    for t in range(1, meta["selections"] + 1):
        recorded = ids_of(arrays["chosen"][t])
        if meta["kind"] == "fedscale" and len(set(recorded.tolist())) < meta["choose"]:
            break
        pool = pool_of(arrays, t, memory)
        draws.able, draws.tries = pool.ids.tolist(), 0
        choice = oort.choose(pool, meta["choose"], draws, **options)
        memory, compared = choice.memory, compared + 1
        wrong += choice.ids.tolist() != recorded.tolist()
        tries += draws.tries != arrays["round/fallback"][t - 1]
        window = arrays["round/exploit_util"][t - t % options["pacer_step"] : t].sum()
        utilities = max(utilities, gap(memory["window_utility"], window))
    detail = f"{compared} of {meta['selections']} selections"
    return [
        ("ids in sequence", wrong, 0.0, detail),
        ("fallback", tries, 0.0, detail),
        ("window utility", utilities, 1e-12, detail),
    ]


def replay_power_of_choice(meta, arrays):
    """Replay a file of power of choice: every round, and the shares of the clients over many draws."""
    rng, gaps = np.random.RandomState(meta["seed"]), dict.fromkeys(("probability", "candidates", "chosen"), 0.0)
    for round in range(meta["rounds"]):
        choice, shares = _choose(meta, arrays, round, rng)
        gaps["probability"] = max(gaps["probability"], gap(shares, arrays["probability"][round]))
        gaps["candidates"] += choice.evaluated.tolist() != arrays["candidates"][round].tolist()
        gaps["chosen"] += choice.ids.tolist() != arrays["chosen"][round].tolist()
    stages = [
        (name, value, 1e-12 if name == "probability" else 0.0, f"{meta['rounds']} rounds")
        for name, value in gaps.items()
    ]
    return [*stages, *_draw_shares(meta, arrays)]


def _choose(meta, arrays, round, rng):
    """The choice of a round, and the probabilities of the first draw, by client."""
    draws = _FirstDraw(rng)
    able, losses = np.flatnonzero(arrays["able"][round]), arrays["loss"][round]
    pool = selection.pool_of(able, round)
    pool = dataclasses.replace(pool, examples_of=arrays["size"].__getitem__, losses_of=losses.__getitem__)
    choice = power_of_choice.choose(pool, meta["choose"], draws, candidates=meta["candidates"])
    shares = np.zeros(meta["clients"])
    shares[able] = draws.shares
    return choice, shares


class _FirstDraw:
    """A generator that remembers the probabilities of its last draw."""

    def __init__(self, rng):
        self.rng, self.shares = rng, None

    def choice(self, ids, count, replace, p):
        self.shares = p
        return self.rng.choice(ids, count, replace=replace, p=p)


def _draw_shares(meta, arrays, draws=20_000):
    """Stages of the share of draws in which each client is a candidate and chosen: six standard errors."""
    stages = []
    for name, round in (("first", 0), ("last", meta["rounds"] - 1)):
        rng = np.random.default_rng(meta["seed"])
        counts = {"candidate": np.zeros(meta["clients"]), "chosen": np.zeros(meta["clients"])}
        for _ in range(draws):
            choice, _ = _choose(meta, arrays, round, rng)
            counts["candidate"][choice.evaluated] += 1
            counts["chosen"][choice.ids] += 1
        tolerance = 6 * np.sqrt(0.25 * (1 / draws + 1 / meta["draws"]))
        for kind, count in counts.items():
            far = np.abs(count / draws - arrays[f"share/{name}_{kind}"]).max()
            stages.append((f"share {name} {kind}", float(far), float(tolerance), f"{draws} draws"))
    return stages
