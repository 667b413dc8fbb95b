"""Data of figures: learning curves with a band over seeds, and a metric over the size of client models."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.reports.summaries import direction, known_metrics, metric_values, truncate_to_common_round
from hetero_tf.runs.history import MIX, Run, differences, distinct_names, is_number
from hetero_tf.runs.published import PublishedValue, matching_values

SIZES = ("parameters", "paper_flops")
# Axes of runs with a fleet.
CLOCK_AXES = ("device_hours", "energy")
# Keys that may differ between the recipes of one series.
_FREE_KEYS = ("name", "seed", MIX)


@dataclass(frozen=True)
class Curve:
    """A line of a figure, or one of its points; all lists have the same length.

    Attributes:
        label: Name of the runs, or their mix.
        index: Index of the runs, which determines their line style in every figure.
        x: Ascending rounds, bytes, seconds or joules; or the mean size of the client models.
        mean, low, high: Mean of the metric over the seeds, and the ends of the band.
        seeds: Number of seeds.
        published: Published values for the recipe.
    """

    label: str
    index: int
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int
    published: tuple[float, ...] = ()


@dataclass(frozen=True)
class SizeSeries:
    """Recipes that differ only in their mix.

    Attributes:
        label: Differences from other series; "" if this is the only one.
        points: One point for each recipe, sorted by size.
        lines: For each pair of levels, indices of the points of these levels and of their mixes.
    """

    label: str
    points: list[Curve]
    lines: list[list[int]]


def learning_curves(
    groups: dict[str, list[Run]], metric: str, x: str, band: str, published: Sequence[PublishedValue] = ()
) -> list[Curve]:
    """Return one curve for each group with the metric and the axis, best last value first.

    Args:
        groups: `{name: [Run]}`.
        metric: Metric of the rows.
        x: "round", "device_hours", "energy", "megabytes" or "seconds".
        band: "range", from the lowest to the highest seed; "std", one standard deviation on either side.
        published: Values to show for recipes with matching keys.

    Raises:
        InputError: No group has a curve, or no published value matches a curve.
    """
    drawn = []
    for index, (name, runs) in enumerate(groups.items()):
        seeds = [_values_by_x(run, metric, _AXES[x]) for run in runs]
        drawn.append(_curve(name, index, runs, list(filter(None, seeds)), metric, band, published, x == "round"))
    drawn = [curve for curve in drawn if curve.x]
    if not drawn:
        _raise_nothing_to_draw(groups, metric, x)
    _check_published(published, drawn, metric)
    return sorted(drawn, key=lambda curve: -direction(metric) * curve.mean[-1])


def _values_by_x(run, metric, axis):
    """Return `{x: value}` of the measured rounds; of equal x only the last one."""
    xs = axis(run)
    return {xs[round]: value for round, value in metric_values(run, metric) if round in xs}


def _curve(name, index, runs, seeds, metric, band, published, is_common=True):
    """Return the curve of `{x: value}` of some seeds.

    It has the x of all seeds if they are `is_common`. Else a seed has between two evaluations the value of the earlier
    one, and the curve begins and ends with the seeds that are last to begin and first to end.
    """
    import pandas

    values = tuple(dict.fromkeys(value.value for value in matching_values(published, runs[0].keys, [metric])))
    if not seeds:
        return Curve(name, index, [], [], [], [], 0, values)
    table: Any = pandas.concat([pandas.Series(seed, dtype=float) for seed in seeds], axis=1).sort_index()
    if not is_common:
        table = table.ffill().loc[: min(map(max, seeds))]
    table = table.dropna()
    mean, low, high = table.mean(axis=1), table.min(axis=1), table.max(axis=1)
    if band == "std":
        deviation = table.std(axis=1).fillna(0.0)
        low, high = mean - deviation, mean + deviation
    xs, middle, bottom, top = (each.tolist() for each in (table.index, mean, low, high))
    return Curve(name, index, xs, middle, bottom, top, len(seeds), values)


def _rounds(run):
    return {row["round"]: row["round"] for row in run.rows}


def _seconds(run):
    """Return cumulative seconds in calls of the compiled round, without evaluation and checkpoints."""
    rows = [row for row in run.timings if is_number(row.get("seconds"))]
    return dict(zip((row["round"] for row in rows), itertools.accumulate(row["seconds"] for row in rows)))


def _total(name):
    """Return a function of a run to `{round: total of a metric since the start of the run}`."""
    return lambda run: dict(metric_values(run, name))


_AXES: dict[str, Callable[[Run], dict[int, float]]] = {
    "round": _rounds,
    "megabytes": _total("bytes"),
    "device_hours": _total("device_seconds"),
    "energy": _total("energy"),
    "seconds": _seconds,
}


def size_series(
    groups: dict[str, list[Run]], metric: str, x: str, band: str, published: Sequence[PublishedValue] = ()
) -> list[SizeSeries]:
    """Return a metric over model size, as in the figures of HeteroFL.

    Args:
        groups, metric, band, published: See `learning_curves`.
        x: One of `SIZES`.

    Raises:
        InputError: No run has the metric and stored costs, or no published value matches a run.
    """
    # Of each series: a run, and the points with their levels.
    series: dict[str, tuple[Run, list[tuple[Curve, frozenset[str]]]]] = {}
    for runs in groups.values():
        last = [values[-1][1] for run in truncate_to_common_round(runs) if (values := metric_values(run, metric))]
        sizes = [getattr(run.costs.mix, x) for run in runs if run.costs]
        if last and sizes:
            fixed_keys = {key: value for key, value in runs[0].keys.items() if key not in _FREE_KEYS}
            seeds = [{statistics.fmean(sizes): value} for value in last]
            point = _curve(str(runs[0].keys[MIX]), 0, runs, seeds, metric, band, published)
            _, points = series.setdefault(repr(sorted(fixed_keys.items())), (runs[0], []))
            points.append((point, frozenset(runs[0].mix)))
    if not series:
        _raise_nothing_to_draw(groups, metric, x)
    _check_published(published, [point for _, points in series.values() for point, _ in points], metric)
    first = [run for run, _ in series.values()]
    # Prefer the differences as labels, because names may describe mixes; use names if there are none.
    labels = [""] if len(first) == 1 else differences(first, _FREE_KEYS)
    labels = labels if all(labels) or len(first) == 1 else distinct_names(first, _FREE_KEYS)
    return [_size_series(label, points) for label, (_, points) in zip(labels, series.values())]


def _size_series(label, points_and_levels):
    """Return a series with lines: for each pair of levels with a mix, through the points of these levels and mixes."""
    points, levels = zip(*sorted(points_and_levels, key=lambda pair: pair[0].x))
    pairs = dict.fromkeys(each for each in levels if len(each) == 2)
    lines = [[index for index, each in enumerate(levels) if each <= pair] for pair in pairs]
    return SizeSeries(label, list(points), [line for line in lines if len(line) > 1])


def _check_published(published: Sequence[PublishedValue], drawn: Sequence[Curve], metric: str) -> None:
    """Refuse published values if none of them is drawn."""
    if published and not any(entry.published for entry in drawn):
        names = ", ".join(dict.fromkeys(value.name for value in published))
        raise InputError(
            f"no drawn run matches a published value of {metric}; omit --published, or name "
            f"another table. Received: --published, which is {names}"
        )


def _raise_nothing_to_draw(groups: dict[str, list[Run]], metric: str, x: str) -> None:
    """Raise an error with the reason why there is nothing to draw."""
    known = known_metrics(run for group in groups.values() for run in group)
    if metric not in known:
        raise InputError(f"no run has this metric; known: {', '.join(known)}. Received: metric={metric}")
    missing = "costs.json, which resuming the training adds" if x in SIZES else f"{x} of an evaluated round"
    hint = "; train with --fleet, or add --fleet NAME to time finished runs" if x in CLOCK_AXES else ""
    raise InputError(f"no run has {missing}{hint}. Received: x={x}")


def describe_bands(curves: Iterable[Curve], band: str) -> str:
    """Describe the bands or bars; "" if every recipe has one seed."""
    seeds = {curve.seeds for curve in curves} - {1}
    if not seeds:
        return ""
    count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"mean and {'range' if band == 'range' else 'standard deviation'} of {count} seeds"


def legend_title(curves: Sequence[Curve], band: str, sign: str) -> str:
    """Describe bands and published values; `sign` is the style of the latter, such as "thin lines"."""
    texts = [describe_bands(curves, band), f"{sign}: published" if any(curve.published for curve in curves) else ""]
    return "; ".join(text for text in texts if text)
