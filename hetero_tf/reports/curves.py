"""The numbers of figures: learning curves with a band over seeds, and accuracy against the size of clients' models."""

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hetero_tf.base.errors import InputError
from hetero_tf.reports.published import Value, matching
from hetero_tf.reports.summaries import direction, known_metrics, measured
from hetero_tf.runs.history import MIX, Run, differences, is_number, told_apart

SIZES = ("parameters", "paper_flops")
# Keys in which the recipes of one series may differ.
_OF_A_FAMILY = ("name", "seed", MIX)


@dataclass(frozen=True)
class Curve:
    """One line of a figure, with as many values in each list.

    Attributes:
        label: Name of the runs.
        place: Of the runs among all, by which every figure gives them the same look.
        x: Ascending: rounds, bytes or seconds; means over the seeds.
        mean, low, high: Of the metric over the seeds; low and high are the ends of the band.
        seeds: How many there are.
        published: What others report for the recipe.
    """

    label: str
    place: int
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    seeds: int
    published: tuple[float, ...] = ()


@dataclass(frozen=True)
class Point:
    """One recipe: the mean size of its clients' models, and what it reached at the last measured round.

    Attributes:
        label: Its mix.
        levels: The levels of the mix.
        x: Parameters, or operations of a forward pass, of a client; mean of the mix.
        mean, low, high: Of the metric over the seeds.
        seeds: How many there are.
        published: What others report for the recipe.
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
class Series:
    """Recipes that differ in their mix only.

    Attributes:
        label: What tells them from other series; "" where there are none.
        points: By size.
        lines: Positions of the points that interpolate between two levels, and of the two levels' own.
    """

    label: str
    points: list[Point]
    lines: list[list[int]]


def learning_curves(
    groups: dict[str, list[Run]], metric: str, x: str, band: str, published: Sequence[Value] = ()
) -> list[Curve]:
    """One curve for each group that has the metric and the axis, the best last value first.

    Args:
        groups: `{name: [Run]}`.
        metric: Of the rows.
        x: "round", "bytes" or "seconds".
        band: "range", from the lowest to the highest seed; "std", a standard deviation on either side.
        published: Values to show where a recipe has their keys.

    Raises:
        InputError: There is none, or no value belongs to one.
    """
    curves = [
        _curve(name, place, runs, metric, _AXES[x], band, published)
        for place, (name, runs) in enumerate(groups.items())
    ]
    drawn = [curve for curve in curves if curve.x]
    if not drawn:
        _refuse(groups, metric, x)
    _check_beside(published, drawn, metric)
    return sorted(drawn, key=lambda curve: -direction(metric) * curve.mean[-1])


def _curve(name, place, runs, metric, axis, band, published):
    """The means over the seeds, at the rounds that all of them have measured."""
    found = [(dict(measured(run, metric)), axis(run)) for run in runs]
    found = [(values, places) for values, places in found if values.keys() & places.keys()]
    shared = [set(values.keys() & places.keys()) for values, places in found]
    rounds = sorted(set.intersection(*shared)) if shared else []
    spans = [_span([values[round] for values, _ in found], band) for round in rounds]
    mean, low, high = (list(values) for values in zip(*spans)) if spans else ([], [], [])
    xs = [statistics.fmean(places[round] for _, places in found) for round in rounds]
    return Curve(name, place, xs, mean, low, high, len(found), _beside(published, runs, metric))


def _span(values: Sequence[float], band: str) -> tuple[float, float, float]:
    """(mean, low, high) of the values of several seeds."""
    mean = statistics.fmean(values)
    if band == "range":
        return mean, min(values), max(values)
    away = statistics.stdev(values) if len(values) > 1 else 0.0
    return mean, mean - away, mean + away


def _rounds(run):
    return {row["round"]: row["round"] for row in run.rows}


def _bytes(run):
    return {row["round"]: row["bytes"] for row in run.rows if is_number(row.get("bytes"))}


def _seconds(run):
    """Seconds in calls of the compiled round up to the last one of each; measuring and sealing do not count."""
    rows = [row for row in run.timings if is_number(row.get("seconds"))]
    return dict(zip((row["round"] for row in rows), itertools.accumulate(row["seconds"] for row in rows)))


_AXES: dict[str, Callable[[Run], dict[int, float]]] = {"round": _rounds, "bytes": _bytes, "seconds": _seconds}


def size_series(
    groups: dict[str, list[Run]], metric: str, x: str, band: str, published: Sequence[Value] = ()
) -> list[Series]:
    """Accuracy, or another metric, against size: as HeteroFL's figures have it.

    Args:
        groups, metric, band, published: As for `learning_curves`.
        x: One of `SIZES`.

    Raises:
        InputError: No run has measured the metric and kept what its clients cost, or no value belongs to one.
    """
    families: dict[str, list[Point]] = {}
    first: list[Run] = []
    for runs in groups.values():
        point = _point(runs, metric, x, band, published)
        if point is not None:
            without = {key: value for key, value in runs[0].keys.items() if key not in _OF_A_FAMILY}
            if (family := repr(sorted(without.items()))) not in families:
                first.append(runs[0])
            families.setdefault(family, []).append(point)
    if not families:
        _refuse(groups, metric, x)
    _check_beside(published, list(itertools.chain(*families.values())), metric)
    # What differs says more than names, as mixes have names too; without it they are all that there is.
    labels = [""] if len(first) == 1 else differences(first, _OF_A_FAMILY)
    labels = labels if all(labels) or len(first) == 1 else told_apart(first, _OF_A_FAMILY)
    ordered = (sorted(points, key=lambda point: point.x) for points in families.values())
    return [Series(label, points, _lines(points)) for label, points in zip(labels, ordered)]


def _point(runs, metric, x, band, published):
    values = [found[-1][1] for run in runs if (found := measured(run, metric))]
    sizes = [run.costs.mix[x] for run in runs if run.costs]
    if not values or not sizes:
        return None
    levels = frozenset(runs[0].mix)
    beside, size = _beside(published, runs, metric), statistics.fmean(sizes)
    return Point(str(runs[0].keys[MIX]), levels, size, *_span(values, band), len(values), beside)


def _lines(points: Sequence[Point]) -> list[list[int]]:
    """The points of two levels and every mix of them, for each two levels of which there is a mix."""
    pairs = dict.fromkeys(point.levels for point in points if len(point.levels) == 2)
    lines = [[place for place, point in enumerate(points) if point.levels <= pair] for pair in pairs]
    return [line for line in lines if len(line) > 1]


def _beside(published, runs, metric):
    """The published values of a recipe, each once."""
    return tuple(dict.fromkeys(value.value for value in matching(published, runs[0].keys, [metric])))


def _check_beside(published: Sequence[Value], drawn: Sequence[Curve | Point], metric: str) -> None:
    """Refuses values of which none is drawn."""
    if published and not any(one.published for one in drawn):
        names = ", ".join(dict.fromkeys(value.name for value in published))
        raise InputError(
            f"no run that is drawn has the keys of a published value of {metric}; leave --published out, or name "
            f"another table. Received: --published, which is {names}"
        )


def _refuse(groups: dict[str, list[Run]], metric: str, x: str) -> None:
    """Says why there is nothing to draw."""
    runs = [run for group in groups.values() for run in group]
    known = known_metrics(runs)
    if metric not in known:
        raise InputError(f"no run measures it; known: {', '.join(known)}. Received: metric={metric}")
    missing = "costs.json, which the same training adds" if x in SIZES else f"{x} of a round that was measured"
    raise InputError(f"no run has kept {missing}. Received: x={x}")


def bands(curves: Iterable[Curve | Point], band: str) -> str:
    """What the bands, or the bars of points, show, for a person; "" where every recipe has one seed."""
    seeds = {curve.seeds for curve in curves} - {1}
    if not seeds:
        return ""
    many = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"mean and {'range' if band == 'range' else 'standard deviation'} of {many} seeds"


def explained(curves: Sequence[Curve | Point], band: str, sign: str) -> str:
    """What bands and published values are, for a person; `sign` is how the latter are drawn, such as "thin lines"."""
    told = [bands(curves, band), f"{sign}: published" if any(curve.published for curve in curves) else ""]
    return "; ".join(text for text in told if text)
