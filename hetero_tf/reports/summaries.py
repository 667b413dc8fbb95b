"""What one run reached in a metric and what it cost; the mean and spread over several."""

import statistics
from collections.abc import Iterable, Sequence

from hetero_tf.base.metrics import find
from hetero_tf.runs.history import Run, is_number

# Where a run has one of them, it says which round is the best one.
CHOOSERS = ("validation_accuracy", "validation_perplexity")
# What is compared where nothing is asked for: the first that a run has, and that of every level.
USUAL = ("global_accuracy", "global_perplexity")
OF_LEVELS = ("level_accuracy_", "level_perplexity_")


def measured(run: Run, metric: str) -> list[tuple[int, float]]:
    """(round, value) of every round in which a run has measured a metric."""
    return [(row["round"], row[metric]) for row in run.rows if is_number(row.get(metric))]


def known_metrics(runs: Iterable[Run]) -> list[str]:
    """The metrics that some of the runs have measured, in alphabetical order."""
    names = {name for run in runs for row in run.rows for name, value in row.items() if is_number(value)}
    return sorted(names - {"round"})


def usual_metrics(runs: Sequence[Run]) -> list[str]:
    """What is compared where nothing is asked for: how good the global models are, and those of the levels."""
    known = known_metrics(runs)
    levels = sorted({level for run in runs for level in run.mix})
    return [
        *(name for name in USUAL if name in known),
        *(name for begin in OF_LEVELS for level in levels if (name := f"{begin}{level}") in known),
    ]


def direction(metric: str) -> int:
    """-1 where lower is better, else 1."""
    known = find(metric)
    return -1 if known and known.better == "lower" else 1


def summary(run: Run, metric: str, target: float | None = None, at: Iterable[int] = ()) -> dict[str, float | None]:
    """What one run reached in one metric.

    Returns:
        {"at ROUND" for each of `at`, None where that round was not measured; "last", "best", "best_round"; and if
        `target` is given "target_round" and "target_bytes", None where it is not reached}. All are None where the run
        does not measure the metric.
    """
    found = measured(run, metric)
    best_round, best = best_of(run, metric)
    values: dict[str, float | None] = {f"at {round}": dict(found).get(round) for round in at}
    values |= {"last": found[-1][1] if found else None, "best": best, "best_round": best_round}
    if target is not None:
        sign = direction(metric)
        reached = next((round for round, value in found if sign * value >= sign * target), None)
        values |= {"target_round": reached, "target_bytes": None if reached is None else cost(run, reached)["bytes"]}
    return values


def best_of(run: Run, metric: str) -> tuple[int | None, float | None]:
    """The best round and its value: chosen on the held-out examples where the run has some; (None, None) without."""
    values = dict(measured(run, metric))
    for chooser in CHOOSERS:
        pairs = [pair for pair in measured(run, chooser) if pair[0] in values]
        if pairs:
            best = max(pairs, key=lambda pair: direction(chooser) * pair[1])[0]
            return best, values[best]
    return max(values.items(), key=lambda pair: direction(metric) * pair[1], default=(None, None))


def cost(run: Run, last: int | None = None) -> dict[str, float | None]:
    """What a run cost up to round `last` (None: all of it): `{"bytes", "client_bytes", "train_flops"}`.

    "client_bytes" is the mean of an active client in a round. All are None where the metrics do not tell.
    """
    rows = [row for row in run.rows if last is None or row["round"] <= last]
    if not all(is_number(row.get(name)) for row in rows for name in ("bytes_down", "bytes_up", "train_flops")):
        return {"bytes": None, "client_bytes": None, "train_flops": None}
    total = sum(row["bytes_down"] + row["bytes_up"] for row in rows)
    clients = sum(sum(active(row).values()) for row in rows)
    return {
        "bytes": total,
        "client_bytes": total / clients if clients else None,
        "train_flops": sum(row["train_flops"] for row in rows),
    }


def active(row: dict) -> dict[str, float]:
    """The active clients of each level in a round; nothing where its row does not tell."""
    levels = row.get("levels")
    return {name: many for name, many in levels.items() if is_number(many)} if isinstance(levels, dict) else {}


def client_seconds(run: Run) -> float | None:
    """Seconds of local training for each client and round, median over the run's calls; None where nobody measured.

    The first call does more than train: it fills caches, and XLA compiles in it.
    """
    each = [
        row["seconds"] / row["clients"]
        for row in run.timings
        if is_number(row.get("seconds")) and is_number(row.get("clients")) and row["clients"] > 0
    ]
    return statistics.median(each) if each else None


def spread(values: Iterable[float | None]) -> dict:
    """The mean of the values that are not None, their standard deviation (None for one), and how many they are.

    The standard deviation is that of a sample: the sum of squares is divided by one less than the number of values.
    """
    there = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(there) if there else None,
        "spread": statistics.stdev(there) if len(there) > 1 else None,
        "of": len(there),
    }
