"""Comparison of runs: one row for each recipe, with mean and spread over its seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import fields

from hetero_tf.base.errors import InputError
from hetero_tf.reports.summaries import (
    CLOCK_TOTALS,
    Moment,
    client_seconds,
    default_metrics,
    known_metrics,
    mean_and_spread,
    metric_values,
    run_cost,
    summarize,
    truncate_to_common_round,
    values_at,
)
from hetero_tf.runs.history import MIX, MixCost, Run
from hetero_tf.runs.published import PublishedValue, matching_values


def compare(
    groups: dict[str, list[Run]],
    metrics: Sequence[str] = (),
    goals: Sequence[float] = (),
    at: Sequence[Moment] = (),
    published: Sequence[PublishedValue] = (),
) -> list[dict]:
    """Return one row for each group, ready for JSON.

    Args:
        groups: `{name: [Run]}`, see `runs.grouped`.
        metrics: Metrics to show as "last" and "best". Empty: the default metrics, the first one as both and the others
            as "last".
        goals: Values of the first metric; a row has the rounds, traffic, device time and energy to reach each.
        at: Rounds and device times at which to show the first metric.
        published: Values of papers; a row contains the values that match its recipe.

    Returns:
        {"name", "levels" (the mix), "seeds", "rounds", "done" (rounds that all seeds have done; later rounds are
        ignored unless all are finished), "finished", "METRIC at MOMENT" for the first metric as `summaries.values_at`,
        "METRIC WHAT" for each metric and each key of `summaries.summarize`, "bytes", "client_bytes", "train_flops",
        "device_seconds", "energy" and "client_seconds", each as `summaries.mean_and_spread`; each field of `MixCost`,
        None if the runs lack them; "published", a list of `PublishedValue.to_json` with "difference"}.

    Raises:
        InputError: No run measures a requested metric, or none has the device time of `at`.
    """
    runs = [run for group in groups.values() for run in group]
    shown_metrics = list(metrics) or default_metrics(runs)
    known = known_metrics(runs)
    for metric in shown_metrics:
        if metric not in known:
            raise InputError(f"no run has this metric; known: {', '.join(known)}. Received: metric={metric}")
    timed = any(client_seconds(run) is not None for run in runs)
    totals = [name for name in CLOCK_TOTALS if any(value for run in runs for _, value in metric_values(run, name))]
    _check_times(at, totals)
    rows = []
    for name, group in groups.items():
        aligned = truncate_to_common_round(group)
        row = _run_columns(name, aligned)
        for index, metric in enumerate(shown_metrics):
            row |= {} if index else {f"{metric} at {moment.text}": values_at(aligned, metric, moment) for moment in at}
            options = {} if index else {"goals": goals, "totals": totals}
            row |= _metric_columns(aligned, metric, all_keys=bool(metrics) or not index, **options)
        row |= _cost_columns(aligned, timed, totals)
        matches = matching_values(published, group[0].keys, shown_metrics)
        rows.append(row | {"published": [value.to_json() | _difference(row, value) for value in matches]})
    return rows


def _difference(row, value):
    """Return {"difference": best (else last) value of finished runs minus the published one, or None}."""
    ours = row.get(f"{value.metric} best", row[f"{value.metric} last"])["mean"]
    return {"difference": ours - value.value if row["finished"] and ours is not None else None}


def _run_columns(name, group):
    """Return the columns that identify the runs."""
    return {
        "name": name,
        "levels": group[0].keys[MIX],
        "seeds": [run.seed for run in group],
        "rounds": group[0].rounds,
        "done": min(run.done for run in group),
        "finished": all(run.is_finished for run in group),
    }


def _check_times(at, totals):
    """Refuse a device time if no run has one."""
    time = next((moment for moment in at if moment.seconds is not None), None)
    if time and "device_seconds" not in totals:
        raise InputError(
            f"no run has device times; train with --fleet, or add --fleet NAME to time finished runs. "
            f"Received: --at={time.text}"
        )


def _cost_columns(group, timed, totals):
    """Return the cost columns; `timed` adds seconds of training, `totals` device time and energy."""
    row = {
        key: mean_and_spread(run_cost(run)[key] for run in group) for key in ("bytes", "client_bytes", "train_flops")
    }
    for name in totals:
        row[name] = mean_and_spread(max(dict(metric_values(run, name)).values(), default=None) for run in group)
    row |= {"client_seconds": mean_and_spread(map(client_seconds, group))} if timed else {}
    mix_costs = next((run.costs.mix for run in group if run.costs), None)
    return row | {field.name: getattr(mix_costs, field.name, None) for field in fields(MixCost)}


def _metric_columns(group: Iterable[Run], metric, all_keys, **options):
    """Return the columns of one metric; with `all_keys`, not only its last value; see `summarize` for the options."""
    summaries = [summarize(run, metric, **options) for run in group]
    keys = summaries[0] if all_keys else ("last",)
    return {f"{metric} {key}": mean_and_spread(values[key] for values in summaries) for key in keys}
