"""Data of figures: learning curves with a band over seeds, and accuracy over the size of client models."""

import bisect
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
    """One line of a figure; all lists have the same length.

    Attributes:
        label: Name of the runs.
        index: Index of the runs, which determines their line style in every figure.
        x: Ascending rounds, bytes, seconds or joules.
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
class SizePoint:
    """One recipe: the mean size of its client models, and its metric at the last measured round.

    Attributes:
        label: Mix of the recipe.
        levels: The levels of the mix.
        x: Parameters, or operations of a forward pass, of a client; mean over the mix.
        mean, low, high: Mean of the metric over the seeds, and the ends of the bar.
        seeds: Number of seeds.
        published: Published values for the recipe.
    """

    label: str
    levels: frozenset[str]
    x: float
    mean: float
    low: float
    high: float
    seeds: int
    published: tuple[float, ...] = ()


@dataclass(frozen=True)
class SizeSeries:
    """Recipes that differ only in their mix.

    Attributes:
        label: Differences from other series; "" if this is the only one.
        points: Points sorted by size.
        lines: For each pair of levels, indices of the points of these levels and of their mixes.
    """

    label: str
    points: list[SizePoint]
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
    curves = [
        _curve(name, index, runs, metric, _AXES[x], band, published)
        for index, (name, runs) in enumerate(groups.items())
    ]
    drawn = [curve for curve in curves if curve.x]
    if not drawn:
        _raise_nothing_to_draw(groups, metric, x)
    _check_published(published, drawn, metric)
    return sorted(drawn, key=lambda curve: -direction(metric) * curve.mean[-1])


def _curve(name, index, runs, metric, axis, band, published):
    """Return the curve of a group up to the end of its shortest seed, from the first measurement of the last seed.

    Between two evaluations a seed has the value of the earlier one. Rounds are those that all seeds have measured.
    """
    seeds = [_series(axis(run), dict(metric_values(run, metric))) for run in runs]
    seeds = [(xs, ys) for xs, ys in seeds if xs]
    axes = [xs for xs, _ in seeds]
    if not axes:
        grid = []
    elif axis is _rounds:
        grid = sorted(set.intersection(*map(set, axes)))
    else:
        first, last = max(xs[0] for xs in axes), min(xs[-1] for xs in axes)
        grid = sorted({x for xs in axes for x in xs if first <= x <= last})
    spans = [_span([ys[bisect.bisect_right(xs, x) - 1] for xs, ys in seeds], band) for x in grid]
    mean, low, high = (list(values) for values in zip(*spans)) if spans else ([], [], [])
    return Curve(name, index, grid, mean, low, high, len(seeds), _published_values(published, runs, metric))


def _series(xs, values):
    """Return x and the value of each measured round, ascending; of equal x only the last one."""
    series = {xs[round]: value for round, value in values.items() if round in xs}
    return sorted(series), [series[x] for x in sorted(series)]


def _span(values: Sequence[float], band: str) -> tuple[float, float, float]:
    """Return (mean, low, high) of the values of several seeds."""
    mean = statistics.fmean(values)
    if band == "range":
        return mean, min(values), max(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return mean, mean - deviation, mean + deviation


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
    families: dict[str, list[SizePoint]] = {}
    first: list[Run] = []
    for runs in groups.values():
        point = _point(runs, metric, x, band, published)
        if point is not None:
            fixed_keys = {key: value for key, value in runs[0].keys.items() if key not in _FREE_KEYS}
            if (family := repr(sorted(fixed_keys.items()))) not in families:
                first.append(runs[0])
            families.setdefault(family, []).append(point)
    if not families:
        _raise_nothing_to_draw(groups, metric, x)
    _check_published(published, list(itertools.chain(*families.values())), metric)
    # Prefer the differences as labels, because names may describe mixes; use names if there are none.
    labels = [""] if len(first) == 1 else differences(first, _FREE_KEYS)
    labels = labels if all(labels) or len(first) == 1 else distinct_names(first, _FREE_KEYS)
    ordered = (sorted(points, key=lambda point: point.x) for points in families.values())
    return [SizeSeries(label, points, _lines(points)) for label, points in zip(labels, ordered)]


def _point(runs, metric, x, band, published):
    values = [points[-1][1] for run in truncate_to_common_round(runs) if (points := metric_values(run, metric))]
    sizes = [run.costs.mix[x] for run in runs if run.costs]
    if not values or not sizes:
        return None
    levels = frozenset(runs[0].mix)
    published_values, size = _published_values(published, runs, metric), statistics.fmean(sizes)
    return SizePoint(str(runs[0].keys[MIX]), levels, size, *_span(values, band), len(values), published_values)


def _lines(points: Sequence[SizePoint]) -> list[list[int]]:
    """Return, for each pair of levels with a mix, the indices of the points of these levels and their mixes."""
    pairs = dict.fromkeys(point.levels for point in points if len(point.levels) == 2)
    lines = [[index for index, point in enumerate(points) if point.levels <= pair] for pair in pairs]
    return [line for line in lines if len(line) > 1]


def _published_values(published, runs, metric):
    """Return the published values of a recipe without duplicates."""
    return tuple(dict.fromkeys(value.value for value in matching_values(published, runs[0].keys, [metric])))


def _check_published(published: Sequence[PublishedValue], drawn: Sequence[Curve | SizePoint], metric: str) -> None:
    """Refuse published values if none of them is drawn."""
    if published and not any(entry.published for entry in drawn):
        names = ", ".join(dict.fromkeys(value.name for value in published))
        raise InputError(
            f"no drawn run matches a published value of {metric}; omit --published, or name "
            f"another table. Received: --published, which is {names}"
        )


def _raise_nothing_to_draw(groups: dict[str, list[Run]], metric: str, x: str) -> None:
    """Raise an error with the reason why there is nothing to draw."""
    runs = [run for group in groups.values() for run in group]
    known = known_metrics(runs)
    if metric not in known:
        raise InputError(f"no run has this metric; known: {', '.join(known)}. Received: metric={metric}")
    missing = "costs.json, which resuming the training adds" if x in SIZES else f"{x} of an evaluated round"
    hint = "; train with --fleet, or add --fleet NAME to time finished runs" if x in CLOCK_AXES else ""
    raise InputError(f"no run has {missing}{hint}. Received: x={x}")


def describe_bands(curves: Iterable[Curve | SizePoint], band: str) -> str:
    """Describe the bands or bars; "" if every recipe has one seed."""
    seeds = {curve.seeds for curve in curves} - {1}
    if not seeds:
        return ""
    count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"mean and {'range' if band == 'range' else 'standard deviation'} of {count} seeds"


def legend_title(curves: Sequence[Curve | SizePoint], band: str, sign: str) -> str:
    """Describe bands and published values; `sign` is the style of the latter, such as "thin lines"."""
    texts = [describe_bands(curves, band), f"{sign}: published" if any(curve.published for curve in curves) else ""]
    return "; ".join(text for text in texts if text)
