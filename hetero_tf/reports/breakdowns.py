"""Breakdowns of results and time: by level, by client, by round, and by part of the work."""

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetero_tf.reports import style
from hetero_tf.reports.figures import metric_label
from hetero_tf.reports.summaries import (
    active_clients,
    known_metrics,
    level_prefixes,
    metric_values,
    truncate_to_common_round,
)
from hetero_tf.runs.history import Run, is_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Parts of the work of a run; planning runs in parallel.
PARTS = ("training", "merging", "measuring", "sealing")
HATCHES = ("", "///", "...", "xxx")
# Maximum runs in the figure of active clients.
MOST_PANELS = 12
# Inches of one row in a figure with one row for each run.
_ROW_HEIGHT = 0.28
# Maximum characters in a line of a run name.
_NAME_LENGTH = 28


@dataclass(frozen=True)
class ClientSpread:
    """Spread of the accuracy over clients at the last measured round, in percent, mean over the seeds.

    Attributes:
        mean, std: Mean and standard deviation over clients.
        noise: Expected standard deviation if all clients had the same accuracy; None if not measured.
        worst: Mean accuracy of the worst tenth of the clients.
    """

    mean: float
    std: float
    noise: float | None
    worst: float


def level_metric_prefix(groups: dict[str, list[Run]]) -> str | None:
    """Return the prefix of the measured level metrics; None if there are none."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    return next((begin for begin in level_prefixes() if any(name.startswith(begin) for name in known)), None)


def level_values(groups: dict[str, list[Run]], kind: str) -> dict[str, dict[str, list[float]]]:
    """Return `{name: {level: [value of each seed]}}` at the last measured round; unmeasured levels are omitted."""
    values_by_name: dict[str, dict[str, list[float]]] = {}
    for name, runs in groups.items():
        values = {level: _last_values(runs, f"{kind}{level}") for level in sorted(runs[0].mix)}
        values_by_name[name] = {level: seeds for level, seeds in values.items() if seeds}
    return values_by_name


def _last_values(runs, metric):
    """Return the last value of a metric in each run that has one."""
    return [pairs[-1][1] for run in truncate_to_common_round(runs) if (pairs := metric_values(run, metric))]


def draw_levels(values_by_name: dict[str, dict[str, list[float]]], kind: str) -> "Figure":
    """Draw one point for each level and run, with a bar over its seeds; runs of a level are side by side."""
    levels = sorted({level for values in values_by_name.values() for level in values})
    names = [name for name, values in values_by_name.items() if values]
    figure = style.figure(2.9, names)
    panel, handles = figure.subplots(), []
    for index, values in enumerate(values_by_name.values()):
        if not values:
            continue
        look = style.line_style(index)
        offset = 0.6 * ((index + 0.5) / len(values_by_name) - 0.5)
        xs = [levels.index(level) + offset for level in values]
        spans = [(min(seeds), statistics.fmean(seeds), max(seeds)) for seeds in values.values()]
        handles.append(style.error_bars(panel, xs, spans, look))
    panel.set_xticks(range(len(levels)), [style.figure_text(level, 12) for level in levels])
    panel.set_xticks([index + 0.5 for index in range(len(levels) - 1)], minor=True)
    panel.grid(False, axis="x")
    panel.grid(True, axis="x", which="minor")
    panel.tick_params(axis="x", which="minor", length=0)
    panel.set(xlabel="level", ylabel=metric_label(f"{kind}LEVEL"), xlim=(-0.5, len(levels) - 0.5))
    style.legend(figure, handles, names)
    return figure


def client_spreads(groups: dict[str, list[Run]]) -> dict[str, ClientSpread]:
    """Return `{name: ClientSpread}` of the runs with client metrics."""
    spread_by_name = {}
    for name, runs in groups.items():
        last = {key: _last_values(runs, f"local_{key}") for key in ("mean", "std", "std_noise", "worst_decile")}
        if last["mean"] and last["std"] and last["worst_decile"]:
            mean, std, worst = (statistics.fmean(last[key]) for key in ("mean", "std", "worst_decile"))
            noise = statistics.fmean(last["std_noise"]) if last["std_noise"] else None
            spread_by_name[name] = ClientSpread(mean, std, noise, worst)
    return spread_by_name


def draw_clients(spread_by_name: dict[str, ClientSpread]) -> "Figure":
    """Draw one row for each run: mean over clients, standard deviation with its noise floor, and worst tenth."""
    labels = ["mean over clients", "± standard deviation", "± its noise floor", "worst tenth of the clients"]
    figure = style.figure(0.75 + _ROW_HEIGHT * len(spread_by_name), labels)
    panel, positions = figure.subplots(), list(range(len(spread_by_name)))
    rows = list(spread_by_name.values())

    def draw_intervals(deviations, **look):
        # Clip to the range of an accuracy.
        ends = [(max(row.mean - std, 0.0), min(row.mean + std, 100.0)) for row, std in zip(rows, deviations)]
        return panel.hlines(positions, *zip(*ends), **look)

    spread = draw_intervals([row.std for row in rows], color="#56B4E9", lw=5)
    floor = draw_intervals([row.noise or 0.0 for row in rows], color="#000000", lw=1)
    (mean,) = panel.plot([row.mean for row in rows], positions, color="#0072B2", ls="none", marker="o", markersize=5)
    (worst,) = panel.plot([row.worst for row in rows], positions, color="#D55E00", ls="none", marker="X", markersize=6)
    _name_rows(panel, list(spread_by_name))
    panel.set(xlabel="accuracy of a client (%)")
    style.legend(figure, [mean, spread, floor, worst], labels)
    return figure


def active_by_level(runs: Sequence[Run]) -> tuple[list[int], dict[str, list[float]]]:
    """Return the rounds of all seeds, and `{level: [active clients in each round]}` as means over the seeds."""
    rows = [{row["round"]: active_clients(row) for row in run.rows} for run in runs]
    rounds = sorted(set.intersection(*(set(active_by_round) for active_by_round in rows)))
    return rounds, {
        level: [statistics.fmean(active_by_round[round].get(level, 0) for active_by_round in rows) for round in rounds]
        for level in sorted(runs[0].mix)
    }


def draw_mix(groups: dict[str, list[Run]]) -> "Figure":
    """Draw stacked bars of the active clients of each level over the rounds, one panel for each run."""
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    active_by_name = {name: active_by_level(runs) for name, runs in list(groups.items())[:MOST_PANELS]}
    levels = sorted({level for _, active in active_by_name.values() for level in active})
    # The widest level has the darkest color.
    colours = {level: colormaps["Blues"](0.95 - 0.7 * index / len(levels)) for index, level in enumerate(levels)}
    labels = [f"level {level}" for level in levels]
    figure = style.figure(0.5 + 0.75 * len(active_by_name), labels)
    panels = figure.subplots(len(active_by_name), sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for panel, (name, (rounds, active)) in zip(panels, active_by_name.items()):
        bottom = [0.0] * len(rounds)
        for level, counts in active.items():
            bars = panel.bar(rounds, counts, 1.0, bottom, color=colours[level], edgecolor="white", linewidth=0.3)
            handles.setdefault(level, bars)
            bottom = [low + high for low, high in zip(bottom, counts)]
        panel.set_title(style.figure_text(name), loc="left", pad=3)
        panel.grid(False)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    panels[-1].set(xlabel="round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supylabel("active clients", fontsize=9)
    style.legend(figure, [handles[level] for level in levels], labels)
    return figure


def seconds_by_part(groups: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Return `{name: {part: seconds}}` of runs with timings: sums over calls, means over the seeds."""
    seconds_by_name = {}
    for name, runs in groups.items():
        timed = [run for run in runs if any("training_seconds" in row for row in run.timings)]
        if timed := truncate_to_common_round(timed):
            seconds_by_name[name] = {part: statistics.fmean(_seconds(run, part) for run in timed) for part in PARTS}
    return seconds_by_name


def _seconds(run, part):
    values = (row.get(f"{part}_seconds") for row in run.timings)
    return sum(value for value in values if is_number(value))


def draw_time(seconds_by_name: dict[str, dict[str, float]]) -> "Figure":
    """Draw one bar for each run, divided into the parts of its work."""
    figure = style.figure(0.75 + _ROW_HEIGHT * len(seconds_by_name), PARTS)
    panel, positions, handles = figure.subplots(), list(range(len(seconds_by_name))), []
    left = [0.0] * len(seconds_by_name)
    for number, part in enumerate(PARTS):
        seconds = [parts[part] for parts in seconds_by_name.values()]
        look: dict[str, Any] = {"color": style.COLOURS[number], "hatch": HATCHES[number], "edgecolor": "white"}
        handles.append(panel.barh(positions, seconds, 0.7, left, linewidth=0, **look))
        left = [begin + more for begin, more in zip(left, seconds)]
    _name_rows(panel, list(seconds_by_name))
    panel.set(xlabel="time of a run (s)")
    style.legend(figure, handles, PARTS)
    return figure


def _name_rows(panel, names: Iterable[str]) -> None:
    """Label the rows with run names, from top to bottom."""
    texts = [
        "\n".join(textwrap.wrap(style.figure_text(name), _NAME_LENGTH, max_lines=2, placeholder="..."))
        for name in names
    ]
    panel.set_yticks(range(len(texts)), texts, fontsize=7 if any("\n" in text for text in texts) else 8)
    panel.set_ylim(len(texts) - 0.4, -0.6)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
