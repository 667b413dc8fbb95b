"""Learning curves with a band over seeds, and a metric over the size of client models."""

import itertools
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import MB, TIME_UNITS, time_unit
from hetero_tf.base.metrics import find_metric
from hetero_tf.reports import style
from hetero_tf.reports.summaries import direction, known_metrics, metric_values, truncate_to_common_round
from hetero_tf.runs.history import MIX, Run, differences, distinct_names, is_number
from hetero_tf.runs.published import PublishedValue, matching_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIZES = ("parameters", "paper_flops")
# Axes of runs with a fleet, and metrics that are totals since the start of a run, by axis.
CLOCK_AXES = ("device_hours", "energy")
TOTALS = {"megabytes": "bytes", "device_hours": "device_seconds", "energy": "energy"}
# Keys that may differ between the recipes of one series.
_FREE_KEYS = ("name", "seed", MIX)


@dataclass(frozen=True)
class Curve:
    """A line of a figure, or one of its points; all lists have the same length.

    Attributes:
        label: Name of the runs, or their mix.
        index: Index of the runs, which determines their line style in every figure.
        x: Ascending rounds, bytes, seconds or joules; or the mean size of the client models.
        mean, low, high: Mean of the metric over the seeds, less and plus their standard deviation (divisor n - 1).
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
        lines: For each pair of levels, indices of the points of these levels and of their mixes.
    """

    label: str
    points: list[Curve]
    lines: list[list[int]]


def learning_curves(
    groups: dict[str, list[Run]], metric: str, x: str, published: Sequence[PublishedValue] = ()
) -> list[Curve]:
    """Return one curve for each group with the metric and the axis, best last value first.

    Args:
        x: "round", "device_hours", "energy", "megabytes" or "seconds".
        published: Values to show for recipes with matching keys.
    """
    drawn = []
    for index, (name, runs) in enumerate(groups.items()):
        # Of several rounds with equal x, the last one counts.
        rounds_of = [(run, _xs(run, x)) for run in runs]
        seeds = [{xs[n]: value for n, value in metric_values(run, metric) if n in xs} for run, xs in rounds_of]
        drawn.append(_curve(name, index, runs, list(filter(None, seeds)), metric, published, x == "round"))
    drawn = [curve for curve in drawn if curve.x]
    if not drawn:
        _raise_nothing_to_draw(groups, metric, x)
    _check_published(published, drawn, metric)
    return sorted(drawn, key=lambda curve: -direction(metric) * curve.mean[-1])


def _curve(name, index, runs, seeds, metric, published, is_common=True):
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
    mean, deviation = table.mean(axis=1), table.std(axis=1).fillna(0.0)
    xs, middle, bottom, top = (each.tolist() for each in (table.index, mean, mean - deviation, mean + deviation))
    return Curve(name, index, xs, middle, bottom, top, len(seeds), values)


def _xs(run, x):
    """Return `{round: value on an axis}`."""
    if x == "round":
        return {row["round"]: row["round"] for row in run.rows}
    if x == "seconds":
        # Those in calls of the compiled round, without evaluation and checkpoints.
        rows = [row for row in run.timings if is_number(row.get("seconds"))]
        return dict(zip((row["round"] for row in rows), itertools.accumulate(row["seconds"] for row in rows)))
    return dict(metric_values(run, TOTALS[x]))


def size_series(
    groups: dict[str, list[Run]], metric: str, x: str, published: Sequence[PublishedValue] = ()
) -> list[SizeSeries]:
    """Return a metric over model size, as in the figures of HeteroFL.

    Args:
        groups, metric, published: See `learning_curves`.
        x: One of `SIZES`.
    """
    # Of each series: a run, and the points with their levels.
    series: dict[str, tuple[Run, list[tuple[Curve, frozenset[str]]]]] = {}
    for runs in groups.values():
        last = [values[-1][1] for run in truncate_to_common_round(runs) if (values := metric_values(run, metric))]
        sizes = [getattr(run.costs.mix, x) for run in runs if run.costs]
        if last and sizes:
            fixed_keys = {key: value for key, value in runs[0].keys.items() if key not in _FREE_KEYS}
            seeds = [{statistics.fmean(sizes): value} for value in last]
            point = _curve(str(runs[0].keys[MIX]), 0, runs, seeds, metric, published)
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
    if published and not any(entry.published for entry in drawn):
        names = ", ".join(dict.fromkeys(value.name for value in published))
        raise InputError(
            f"no drawn run matches a published value of {metric}; omit --published, or name "
            f"another table. Received: --published, which is {names}"
        )


def _raise_nothing_to_draw(groups: dict[str, list[Run]], metric: str, x: str) -> None:
    known = known_metrics(run for group in groups.values() for run in group)
    if metric not in known:
        raise InputError(f"no run has this metric; known: {', '.join(known)}. Received: metric={metric}")
    missing = "costs.json, which resuming the training adds" if x in SIZES else f"{x} of an evaluated round"
    hint = "; train with --fleet, or add --fleet NAME to time finished runs" if x in CLOCK_AXES else ""
    raise InputError(f"no run has {missing}{hint}. Received: x={x}")


def describe_bands(curves: Iterable[Curve]) -> str:
    """Describe the bands or bars; "" if every recipe has one seed."""
    seeds = {curve.seeds for curve in curves} - {1}
    if not seeds:
        return ""
    count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"mean and standard deviation of {count} seeds"


def legend_title(curves: Sequence[Curve], sign: str) -> str:
    """Describe bands and published values; `sign` is the style of the latter, such as "thin lines"."""
    texts = [describe_bands(curves), f"{sign}: published" if any(curve.published for curve in curves) else ""]
    return "; ".join(text for text in texts if text)


# Axis label, and divisor of the values.
AXES = {
    "round": ("round", 1.0),
    "device_hours": ("device time", 1.0),
    "megabytes": ("weights received and sent by all clients (MB)", MB),
    "energy": ("energy of all clients (Wh)", 3600.0),
    "seconds": ("time in rounds, without evaluation (s)", 1.0),
    "parameters": ("parameters of a client, mean of the mix (thousands)", 1e3),
    "paper_flops": ("FLOPs of a forward pass, mean of the mix (millions)", 1e6),
}
# Approximate maximum of markers on a line.
MAX_MARKERS = 10
# Characters of the label of an axis in an inch of the figure.
CHARACTERS = 13
# Height of a figure without its legend, as a share of its width.
ASPECT = 0.62
# Width of lines at published values.
PUBLISHED_LINE_WIDTH = 0.7
# Use a logarithmic axis if sizes differ by more than this factor.
LOG_SCALE_RATIO = 20


def metric_label(metric: str) -> str:
    """Return the axis label of a metric: "global accuracy (%)", "accuracy of level a (%)"."""
    known, name = find_metric(metric), metric.replace("_", " ")
    if metric.startswith("level_"):
        name, _, level = metric.removeprefix("level_").rpartition("_")
        owner = "a level's model" if level == "LEVEL" else f"level {level}"
        name = f"{name.replace('_', ' ')} of {owner}"
    return style.figure_text(f"{name} ({known.unit})" if known and known.unit else name)


def draw_curves(curves: Sequence[Curve], metric: str, x: str, width: float = style.WIDTH) -> "Figure":
    """Draw lines of the means over seeds with bands; see `learning_curves` for `x`, and `style.figure` for `width`."""
    from matplotlib.ticker import MaxNLocator

    labels, title = [curve.label for curve in curves], legend_title(curves, "thin lines")
    figure = style.figure(ASPECT * width, labels, title, width)
    panel, name, unit = figure.subplots(), *AXES[x]
    if x == "device_hours":
        # The unit that suits the longest time.
        time = time_unit(max(curve.x[-1] for curve in curves))
        name, unit = f"{name} ({time})", TIME_UNITS[time]
    lines = []
    for curve in curves:
        curve_style, xs = style.line_style(curve.index), [value / unit for value in curve.x]
        steps: dict[str, Any] = {} if x == "round" else {"drawstyle": "steps-post"}
        lines += panel.plot(xs, curve.mean, **curve_style, **steps, markevery=max(1, len(xs) // MAX_MARKERS))
        if curve.seeds > 1:
            band_style = {"color": curve_style["color"], "alpha": 0.18, "linewidth": 0}
            panel.fill_between(xs, curve.low, curve.high, **band_style, step="post" if steps else None)
        for value in curve.published:
            panel.axhline(value, color=curve_style["color"], linewidth=PUBLISHED_LINE_WIDTH)
    panel.set(xlabel=textwrap.fill(name, int(CHARACTERS * width)), ylabel=metric_label(metric))
    if x == "round":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend(figure, lines, labels, title)
    return figure


def draw_sizes(series: Sequence[SizeSeries], metric: str, x: str, width: float = style.WIDTH) -> "Figure":
    """Draw points of mixes over the size of their clients, with lines through the mixes of two levels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    points = [point for entry in series for point in entry.points]
    labels, title = [entry.label for entry in series if entry.label], legend_title(points, "hollow")
    figure = style.figure(ASPECT * width, labels, title, width)
    panel, (name, unit) = figure.subplots(), AXES[x]
    handles = [_draw_points(panel, entry, unit, style.line_style(index)) for index, entry in enumerate(series)]
    panel.set(xlabel=textwrap.fill(name, int(CHARACTERS * width)), ylabel=metric_label(metric))
    panel.margins(0.12)
    if max(point.x for point in points)[0] > LOG_SCALE_RATIO * min(point.x for point in points)[0]:
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(lambda size, _: f"{size:,g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
    style.legend(figure, handles if labels else [], labels, title)
    name_points(figure, panel, [(point.x[0] / unit, point.mean[0], point.label) for point in points])
    return figure


def _draw_points(panel, series, unit, look):
    """Draw the points of a series with their bars, lines and published values; return the bars for the legend."""
    xs, ys = [point.x[0] / unit for point in series.points], [point.mean[0] for point in series.points]
    for line in series.lines:
        panel.plot([xs[n] for n in line], [ys[n] for n in line], color=look["color"], ls=look["linestyle"], lw=1)
    hollow = {"color": look["color"], "marker": look["marker"], "markersize": 8, "markerfacecolor": "none"}
    for x, point in zip(xs, series.points):
        for value in point.published:
            panel.plot(x, value, **hollow)
    return style.error_bars(panel, xs, [(*point.low, *point.mean, *point.high) for point in series.points], look, 5.5)


def name_points(figure: "Figure", panel: "Axes", points: Sequence[tuple[float, float, str]]) -> None:
    """Label the points (x, y, name) that have room, so that labels cover no point and no other label."""
    figure.draw_without_rendering()
    marks = [panel.transData.transform((x, y)) for x, y, _ in points]
    occupied: list = []
    for x, y, name in points:
        for right, up in itertools.product((1, -1), (1, -1)):
            sides: dict[str, Any] = {"ha": "left" if right > 0 else "right", "va": "bottom" if up > 0 else "top"}
            text, offset = style.figure_text(name, 24), (6 * right, 4 * up)
            label = panel.annotate(text, (x, y), offset, textcoords="offset points", fontsize=8, **sides)
            box = label.get_window_extent()
            inside = panel.bbox.x0 <= box.x0 and box.x1 <= panel.bbox.x1
            if inside and not any(box.overlaps(other) for other in occupied) and not box.count_contains(marks):
                break
            label.remove()
        else:
            continue
        occupied.append(box)
