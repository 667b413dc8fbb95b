"""Draws learning curves, and metrics over model size."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hetero_tf.base.metrics import find_metric
from hetero_tf.base.units import MB, TIME_UNITS, time_unit
from hetero_tf.reports import style
from hetero_tf.reports.curves import Curve, SizeSeries, legend_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Axis label, and divisor of the values.
AXES = {
    "round": ("round", 1.0),
    "megabytes": ("weights received and sent by all clients (MB)", MB),
    "energy": ("energy of all clients (Wh)", 3600.0),
    "seconds": ("time in rounds, without evaluation (s)", 1.0),
    "parameters": ("parameters of a client, mean of the mix (thousands)", 1e3),
    "paper_flops": ("FLOPs of a forward pass, mean of the mix (millions)", 1e6),
}
DEVICE_HOURS = "device_hours"
# Approximate maximum of markers on a line.
MAX_MARKERS = 10
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


def axis_of(x: str, values: Sequence[float]) -> tuple[str, float]:
    """Return the label and the divisor of an axis; device time has the unit that suits its longest value."""
    if x != DEVICE_HOURS:
        return AXES[x]
    unit = time_unit(max(values))
    return f"device time ({unit})", TIME_UNITS[unit]


def draw_curves(curves: Sequence[Curve], metric: str, x: str, band: str) -> "Figure":
    """Draw lines of the means over seeds with bands; see `curves.learning_curves` for `x` and `band`."""
    from matplotlib.ticker import MaxNLocator

    labels, title = [curve.label for curve in curves], legend_title(curves, band, "thin lines")
    figure = style.figure(3.1, labels, title)
    panel, (name, unit) = figure.subplots(), axis_of(x, [curve.x[-1] for curve in curves])
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
    panel.set(xlabel=name, ylabel=metric_label(metric))
    if x == "round":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend(figure, lines, labels, title)
    return figure


def draw_sizes(series: Sequence[SizeSeries], metric: str, x: str, band: str) -> "Figure":
    """Draw points of mixes over the size of their clients, with lines through the mixes of two levels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    points = [point for entry in series for point in entry.points]
    labels, title = [entry.label for entry in series if entry.label], legend_title(points, band, "hollow")
    figure = style.figure(3.1, labels, title)
    panel, (name, unit) = figure.subplots(), AXES[x]
    handles = [_draw_points(panel, entry, unit, style.line_style(index)) for index, entry in enumerate(series)]
    panel.set(xlabel=name, ylabel=metric_label(metric))
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
