"""Metrics and costs of a run, and a row for each recipe with their mean and spread over seeds."""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import TIME_UNITS
from hetero_tf.base.metrics import find_metric, first_metrics
from hetero_tf.runs.history import MIX, MixCost, Run, is_number
from hetero_tf.runs.published import PublishedValue, matching_values

# Rounds, or a duration of device time.
_MOMENT = re.compile(rf"([0-9]+)|([0-9]+(?:\.[0-9]+)?) ?({'|'.join(TIME_UNITS)})")
# Totals in rows of runs with a fleet.
RUN_TOTALS = ("device_seconds", "energy", "epsilon")
# Probability that an interval contains the mean difference of all seeds.
CONFIDENCE = 0.95
TEST = f"mean over the common seeds and its {100 * CONFIDENCE:.0f} % interval, Student's paired t-test"


@dataclass(frozen=True)
class Moment:
    """A round or a device time at which a comparison shows a metric."""

    text: str
    round: int | None = None
    seconds: float | None = None


def parse_moment(text: str) -> Moment:
    """Parse "10" (a round), "90s", "20min" or "3h"."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise InputError(
            "--at must be comma-separated rounds, or device times in s, min or h, such as 10,90s,20min,3h. "
            f"Received: --at={text}"
        )
    round, number, unit = match.groups()
    return Moment(text, int(round)) if round else Moment(text, seconds=float(number) * TIME_UNITS[unit])


def level_prefixes() -> tuple[str, ...]:
    """Return the beginnings of the names of the level models' default metrics, such as "level_accuracy_"."""
    return tuple(f"level_{name}_" for name in first_metrics())


def metric_values(run: Run, metric: str) -> list[tuple[int, float]]:
    """Return (round, value) for each round with a finite value of a metric."""
    return [(row["round"], row[metric]) for row in run.rows if is_number(row.get(metric))]


def known_metrics(runs: Iterable[Run]) -> list[str]:
    """Return the sorted names of all metrics of the runs."""
    return sorted({name for run in runs for row in run.rows for name in row if is_number(row[name])} - {"round"})


def default_metrics(runs: Sequence[Run]) -> list[str]:
    """Return the default metrics of a comparison: those of the global models and of the level models."""
    known = known_metrics(runs)
    levels = sorted({level for run in runs for level in run.mix})
    global_names = (f"global_{name}" for name in first_metrics())
    of_levels = (f"{prefix}{level}" for prefix in level_prefixes() for level in levels)
    return [name for name in (*global_names, *of_levels) if name in known] or [*{"global_loss"} & {*known}]


def direction(metric: str) -> int:
    """Return -1 if lower is better, else 1."""
    return -1 if (known := find_metric(metric)) and known.better == "lower" else 1


def summarize(
    run: Run, metric: str, goals: Iterable[float] = (), totals: Sequence[str] = ()
) -> dict[str, float | None]:
    """Summarize one metric of one run.

    Args:
        goals: Values of the metric to reach.
        totals: Totals of the rows that the costs of `goals` include, in addition to rounds and bytes.

    Returns:
        {"last", "best", "best_round", and "reach GOAL round", "reach GOAL bytes" and "reach GOAL TOTAL" for each of
        `goals` (None if not reached)}. All are None for a run without the metric.
    """
    values_by_round = metric_values(run, metric)
    best_round, best = best_of(run, metric)
    values = {"last": values_by_round[-1][1] if values_by_round else None, "best": best, "best_round": best_round}
    sign = direction(metric)
    for goal in goals:
        first = next((round for round, value in values_by_round if sign * value >= sign * goal), None)
        values |= {
            f"reach {goal:g} {name}": None if first is None else dict(metric_values(run, name)).get(first)
            for name in totals
        }
        values[f"reach {goal:g} round"] = first
        values[f"reach {goal:g} bytes"] = None if first is None else run_cost(run, first)["bytes"]
    return values


def values_at(runs: Iterable[Run], metric: str, moment: Moment) -> dict:
    """Return `mean_and_spread` of a metric at a round, or at the last evaluation up to a device time.

    Runs count if they have measured the round, or have reached the device time. "ended" describes the finished runs
    that ended before the device time: `mean_and_spread` of their last values, and "seconds", their first and last end.
    It is None without such runs.
    """
    reached, last, ends = [], [], []
    for run in runs:
        values, times = dict(metric_values(run, metric)), dict(metric_values(run, "device_seconds"))
        if moment.seconds is None:
            reached.append(values.get(moment.round or 0))
            continue
        end, limit = max(times.values(), default=0.0), moment.seconds
        value = next((values[round] for round in reversed(times) if round in values and times[round] <= limit), None)
        if end >= limit:
            reached.append(value)
        elif run.is_finished and value is not None:
            last.append(value)
            ends.append(end)
    ended = mean_and_spread(last) | {"seconds": [min(ends), max(ends)]} if ends else None
    return mean_and_spread(reached) | {"ended": ended}


def best_of(run: Run, metric: str) -> tuple[int | None, float | None]:
    """Return the best round and its value, selected on validation data if any; (None, None) without values."""
    values, selected = dict(metric_values(run, metric)), str(run.keys.get("evaluate.best"))
    prefixes = ("validation_local", "validation") if metric.startswith("local_") else ("validation",)
    names = (f"{prefix}_{name}" for prefix in prefixes for name in (*first_metrics(), "loss"))
    for name in (*[selected] * selected.startswith("validation_"), *names, metric):
        selecting, losses = (dict(metric_values(run, key)) for key in (name, f"{name.partition('_')[0]}_loss"))
        if rounds := values.keys() & selecting.keys():
            # The lower loss breaks ties, as in the run.
            best = min(rounds, key=lambda n: (-direction(name) * selecting[n], losses.get(n, math.inf), n))
            return best, values[best]
    return None, None


def run_cost(run: Run, last: int | None = None) -> dict[str, float | None]:
    """Return the costs of a run up to round `last` (None: all rounds): `{"bytes", "client_bytes", "train_flops"}`.

    "client_bytes" is the mean over active clients and rounds. All are None if the metrics lack them.
    """
    rows = [row for row in run.rows if last is None or row["round"] <= last]
    if not all(is_number(row.get(name)) for row in rows for name in ("bytes_down", "bytes_up", "train_flops")):
        return {"bytes": None, "client_bytes": None, "train_flops": None}
    total = sum(row["bytes_down"] + row["bytes_up"] for row in rows)
    clients = sum(sum(active_clients(row).values()) for row in rows)
    return {
        "bytes": total,
        "client_bytes": total / clients if clients else None,
        "train_flops": sum(row["train_flops"] for row in rows),
    }


def active_clients(row: dict) -> dict[str, float]:
    """Return the active clients of each level in a round; empty if the row lacks them."""
    levels = row.get("levels")
    return {name: count for name, count in levels.items() if is_number(count)} if isinstance(levels, dict) else {}


def truncate_to_common_round(group: Sequence[Run]) -> list[Run]:
    """Truncate the runs of a group to the last round that all of them have done, unless all are finished."""
    if all(run.is_finished for run in group):
        return list(group)
    done = min(run.done for run in group)

    def until_done(rows):
        return [row for row in rows if row["round"] <= done]

    return [dataclasses.replace(run, rows=until_done(run.rows), timings=until_done(run.timings)) for run in group]


def mean_and_spread(values: Iterable[float | None]) -> dict:
    """Return mean, standard deviation (None for one value) and number of the values that are not None.

    The standard deviation is that of a sample (divisor n - 1).
    """
    present = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(present) if present else None,
        "spread": statistics.stdev(present) if len(present) > 1 else None,
        "of": len(present),
    }


def paired_difference(values: Sequence[float]) -> dict:
    """Return the mean of the differences of n seeds, and its interval.

    Args:
        values: Differences of n seeds, in the unit of the metric.

    Returns:
        {"mean", "spread" (standard deviation with divisor n - 1), "of" (n), "low", "high" (ends of the interval
        mean ± t * spread / sqrt(n))}; numbers that need more seeds are None.
    """
    summary = mean_and_spread(values)
    mean, spread, count = summary.values()
    if spread is None:
        return summary | dict.fromkeys(("low", "high"))
    freedom, error = count - 1, spread / math.sqrt(count)
    # Bisect the angle whose tangent is t / sqrt(freedom).
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability_within(middle, freedom) < CONFIDENCE else (low, middle)
    half = math.sqrt(freedom) * math.tan(low) * error
    return summary | {"low": mean - half, "high": mean + half}


def _probability_within(angle: float, freedom: int) -> float:
    """Return P(|t| < sqrt(freedom) * tan(angle)) of Student's t (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    total, term = 0.0, math.sin(angle) * math.cos(angle) ** (freedom % 2)
    for power in range(freedom % 2, freedom - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * math.cos(angle) ** 2
    return 2 / math.pi * (angle + total) if freedom % 2 else total


def compare(
    groups: dict[str, list[Run]],
    metrics: Sequence[str] = (),
    goals: Sequence[float] = (),
    at: Sequence[Moment] = (),
    published: Sequence[PublishedValue] = (),
    baseline: str | None = None,
) -> list[dict]:
    """Return one row for each group, ready for JSON.

    Args:
        metrics: Metrics to show as "last" and "best". Empty: the default metrics, the first one as both and the others
            as "last".
        goals: Values of the first metric; a row has the rounds, traffic, device time and energy to reach each.
        at: Rounds and device times at which to show the first metric.
        published: Values of papers; a row contains the values that match its recipe.
        baseline: Name of the group from which the others' last values are subtracted, seed by seed.

    Returns:
        {"name", "levels" (the mix), "seeds", "rounds", "done" (rounds that all seeds have done; later rounds are
        ignored unless all are finished), "finished", "METRIC at MOMENT" for the first metric as `summaries.values_at`,
        "METRIC WHAT" for each metric and each key of `summaries.summarize`, "METRIC difference" as
        `summaries.paired_difference` and "to", the `baseline`, if there is one, "bytes", "client_bytes", "train_flops",
        "device_seconds", "energy" and "epsilon", each as `summaries.mean_and_spread`; each field of `MixCost`, None if
        the runs lack them; "published", a list of `PublishedValue.to_json` with "difference"}.
    """
    runs = [run for group in groups.values() for run in group]
    shown_metrics = list(metrics) or default_metrics(runs)
    known = known_metrics(runs)
    for metric in shown_metrics:
        if metric not in known:
            raise InputError(f"no run has this metric; known: {', '.join(known)}. Received: metric={metric}")
    totals = [name for name in RUN_TOTALS if any(value for run in runs for _, value in metric_values(run, name))]
    time = next((moment for moment in at if moment.seconds is not None), None)
    if time and "device_seconds" not in totals:
        raise InputError(
            f"no run has device times; train with --fleet, or add --fleet NAME to time finished runs. "
            f"Received: --at={time.text}"
        )
    rows = []
    baseline_runs = truncate_to_common_round(groups.get(baseline or "", []))
    for name, group in groups.items():
        aligned = truncate_to_common_round(group)
        row = _run_columns(name, aligned)
        row |= {f"{shown_metrics[0]} at {moment.text}": values_at(aligned, shown_metrics[0], moment) for moment in at}
        for index, metric in enumerate(shown_metrics):
            results = [summarize(run, metric, () if index else goals, totals) for run in aligned]
            keys = results[0] if metrics or not index else ("last",)
            row |= {f"{metric} {key}": mean_and_spread(values[key] for values in results) for key in keys}
            if baseline_runs:
                values = [] if name == baseline else _differences(aligned, baseline_runs, metric)
                row[f"{metric} difference"] = paired_difference(values) | {"to": baseline}
        row |= _cost_columns(aligned, totals)
        matching = matching_values(published, group[0].keys, shown_metrics)
        rows.append(row | {"published": [_published_column(value, row) for value in matching]})
    return rows


def _published_column(value, row):
    """Return a published value as JSON, with the difference of a finished row."""
    ours = row.get(f"{value.metric} best", row[f"{value.metric} last"])["mean"]
    difference = ours - value.value if row["finished"] and ours is not None else None
    return value.to_json() | {"difference": difference}


def _differences(group, baseline_runs, metric):
    """Return the differences of the last values of a metric, one for each seed that both groups have."""
    of_group, of_baseline = (
        {run.seed: summarize(run, metric)["last"] for run in runs} for runs in (group, baseline_runs)
    )
    pairs = [(of_group[seed], of_baseline[seed]) for seed in sorted(of_group.keys() & of_baseline.keys())]
    return [value - reference for value, reference in pairs if value is not None and reference is not None]


def _run_columns(name, group):
    return {
        "name": name,
        "levels": group[0].keys[MIX],
        "seeds": [run.seed for run in group],
        "rounds": group[0].rounds,
        "done": min(run.done for run in group),
        "finished": all(run.is_finished for run in group),
    }


def _cost_columns(group, totals):
    """Return the cost columns; `totals` adds device time, energy and epsilon."""
    row = {
        key: mean_and_spread(run_cost(run)[key] for run in group) for key in ("bytes", "client_bytes", "train_flops")
    }
    for name in totals:
        row[name] = mean_and_spread(max(dict(metric_values(run, name)).values(), default=None) for run in group)
    mix_costs = next((run.costs.mix for run in group if run.costs), None)
    return row | {field.name: getattr(mix_costs, field.name, None) for field in fields(MixCost)}
