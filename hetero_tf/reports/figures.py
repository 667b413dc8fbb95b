"""Draws learning curves, and accuracy against size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetero_tf.base.metrics import find
from hetero_tf.reports import style
from hetero_tf.reports.curves import SIZES, Curve, Series, explained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What an axis shows, and what its values are divided by.
AXES = {
    "round": ("round", 1.0),
    "bytes": ("weights that all clients received and sent (MB)", 1e6),
    "seconds": ("time in rounds, measuring left out (s)", 1.0),
    "parameters": ("parameters of a client, mean of the mix (thousands)", 1e3),
    "paper_flops": ("FLOPs of a forward pass, mean of the mix (millions)", 1e6),
}
# Markers on a line, at most about so many.
MARKED = 10
# Of lines at published values.
THIN = 0.7
# Sizes further apart than this factor stand on a logarithmic axis.
WIDE = 20


def metric_label(metric: str) -> str:
    """How an axis names a metric: "global accuracy (%)", "accuracy of level a (%)"."""
    known, words = find(metric), metric.split("_", 2)
    name = metric.replace("_", " ")
    if words[0] == "level" and len(words) == 3:
        name = f"{words[1]} of " + ("a level's model" if words[2] == "LEVEL" else f"level {words[2]}")
    return style.text(f"{name} ({known.unit})" if known and known.unit else name)


def draw_curves(curves: Sequence[Curve], metric: str, x: str, band: str) -> "Figure":
    """Lines of the means over seeds with their bands; `x`, `band`: as in `curves.learning_curves`."""
    from matplotlib.ticker import MaxNLocator

    labels, title = [curve.label for curve in curves], explained(curves, band, "thin lines")
    figure = style.figure(3.1, labels, title)
    panel, (name, unit) = figure.subplots(), AXES[x]
    lines = []
    for curve in curves:
        look, xs = style.line(curve.place), [value / unit for value in curve.x]
        lines += panel.plot(xs, curve.mean, **look, markevery=max(1, len(xs) // MARKED))
        if curve.seeds > 1:
            panel.fill_between(xs, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0)
        for value in curve.published:
            panel.axhline(value, color=look["color"], linewidth=THIN)
    panel.set(xlabel=name, ylabel=metric_label(metric))
    if x == "round":
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend(figure, lines, labels, title)
    return figure


def draw_sizes(series: Sequence[Series], metric: str, x: str, band: str) -> "Figure":
    """Points of mixes against the size of their clients, joined where they lie between two levels."""
    from matplotlib.ticker import LogLocator, NullFormatter

    assert x in SIZES
    points = [point for one in series for point in one.points]
    labels, title = [one.label for one in series if one.label], explained(points, band, "hollow")
    figure = style.figure(3.1, labels, title)
    panel, (name, unit) = figure.subplots(), AXES[x]
    handles = []
    for place, one in enumerate(series):
        look = style.line(place)
        xs, ys = [point.x / unit for point in one.points], [point.mean for point in one.points]
        for line in one.lines:
            panel.plot([xs[n] for n in line], [ys[n] for n in line], color=look["color"], ls=look["linestyle"], lw=1)
        ends = [[y - point.low for y, point in zip(ys, one.points)], [point.high - point.mean for point in one.points]]
        bars = panel.errorbar(
            xs, ys, ends, color=look["color"], ls="none", marker=look["marker"], markersize=5.5, capsize=2, elinewidth=1
        )
        handles.append(bars)
        for at, point in zip(xs, one.points):
            for value in point.published:
                panel.plot(at, value, color=look["color"], marker=look["marker"], markersize=8, markerfacecolor="none")
    panel.set(xlabel=name, ylabel=metric_label(metric))
    panel.margins(0.12)
    if max(point.x for point in points) > WIDE * min(point.x for point in points):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(lambda size, _: f"{size:,g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
    style.legend(figure, handles if labels else [], labels, title)
    name_points(figure, panel, [(point.x / unit, point.mean, point.label) for point in points])
    return figure


def name_points(figure: "Figure", panel: "Axes", points: Sequence[tuple[float, float, str]]) -> None:
    """Writes a name beside each point (x, y, name) that has room for one: no name covers a point or another name."""
    figure.draw_without_rendering()
    marks = [panel.transData.transform((x, y)) for x, y, _ in points]
    taken: list = []
    for x, y, name in points:
        for offset, across, along in (
            ((6, 4), "left", "bottom"),
            ((6, -4), "left", "top"),
            ((-6, 4), "right", "bottom"),
            ((-6, -4), "right", "top"),
        ):
            label = panel.annotate(
                style.text(name, 24), (x, y), offset, textcoords="offset points", ha=across, va=along, fontsize=8
            )
            box = label.get_window_extent()
            inside = panel.bbox.x0 <= box.x0 and box.x1 <= panel.bbox.x1
            if inside and not any(box.overlaps(other) for other in taken) and not box.count_contains(marks):
                break
            label.remove()
        else:
            continue
        taken.append(box)
