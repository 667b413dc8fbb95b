"""The comparison of runs: one row for each recipe, with the mean and the spread over its seeds."""

import dataclasses
from collections.abc import Iterable, Sequence

from hetero_tf.base.errors import InputError
from hetero_tf.reports.published import Value, matching
from hetero_tf.reports.summaries import client_seconds, cost, known_metrics, spread, summary, usual_metrics
from hetero_tf.runs.history import MIX, Run

# What the mix of a row costs, from `costs.Costs`; the heads of these columns stand in `tables`.
OF_COSTS = ("parameters", "paper_flops", "multiply_adds", "ratio")


def compare(
    groups: dict[str, list[Run]],
    metrics: Sequence[str] = (),
    target: float | None = None,
    at: Sequence[int] = (),
    published: Sequence[Value] = (),
) -> list[dict]:
    """One row for each group, ready for JSON.

    Args:
        groups: `{name: [Run]}`, see `runs.grouped`.
        metrics: What to show, all of it as "last" and "best". None: the usual metrics, the first one as both and the
            others as "last".
        target: A value of the first metric that is to be reached.
        at: Rounds at which to show the first metric.
        published: Values of papers; those whose recipe is that of a group stand in its row.

    Returns:
        {"name", "levels" (the mix), "seeds", "rounds", "done" (by all of them; later
        rounds of a seed that is ahead do not count), "METRIC WHAT" for each
        metric and each key of `summaries.summary`, "bytes", "client_bytes", "train_flops" and "client_seconds", each of
        them as `summaries.spread`; each of `OF_COSTS`, None where the runs have not kept it; "published", a list}.

    Raises:
        InputError: No run measures a metric that was asked for.
    """
    runs = [run for group in groups.values() for run in group]
    shown = list(metrics) or usual_metrics(runs)
    known = known_metrics(runs)
    for metric in shown:
        if metric not in known:
            raise InputError(f"no run measures it; known: {', '.join(known)}. Received: metric={metric}")
    timed = any(client_seconds(run) is not None for run in runs)
    rows = []
    for name, group in groups.items():
        even = evened(group)
        row = _about(name, even)
        for place, metric in enumerate(shown):
            asked = {} if place else {"target": target, "at": at}
            row |= _reached(even, metric, whole=bool(metrics) or not place, **asked)
        row |= _cost(even, timed)
        rows.append(row | {"published": [value.to_json() for value in matching(published, group[0].keys, shown)]})
    return rows


def _about(name, group):
    """The columns that say which runs they are."""
    return {
        "name": name,
        "levels": group[0].keys[MIX],
        "seeds": [run.seed for run in group],
        "rounds": group[0].rounds,
        "done": group[0].done,
    }


def _cost(group, timed):
    """The columns of what runs cost; `timed`: with seconds."""
    row = {key: spread(cost(run)[key] for run in group) for key in ("bytes", "client_bytes", "train_flops")}
    row |= {"client_seconds": spread(map(client_seconds, group))} if timed else {}
    kept = next((run.costs.mix for run in group if run.costs), dict.fromkeys(OF_COSTS))
    return row | {key: kept[key] for key in OF_COSTS}


def evened(group: Sequence[Run]) -> list[Run]:
    """The runs of a group, each up to the last round that all of them have finished."""
    done = min(run.done for run in group)
    return [dataclasses.replace(run, rows=[row for row in run.rows if row["round"] <= done]) for run in group]


def _reached(group: Iterable[Run], metric, whole, target=None, at=()):
    """The columns of one metric; `whole`: not its last value alone."""
    found = [summary(run, metric, target, at) for run in group]
    keys = found[0] if whole else ("last",)
    return {f"{metric} {key}": spread(values[key] for values in found) for key in keys}
