"""Pictures of results and time: by level, by client, by round, and by part of the work."""

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetero_tf.base.files import Damaged
from hetero_tf.base.formatting import TIME_UNITS, time_unit
from hetero_tf.reports import style
from hetero_tf.reports.figures import metric_label
from hetero_tf.reports.style import Picture
from hetero_tf.reports.summaries import (
    active_clients,
    known_metrics,
    level_prefixes,
    mean_and_spread,
    metric_values,
    truncate_to_common_round,
)
from hetero_tf.runs import metrics_file
from hetero_tf.runs.history import Run, is_number
from hetero_tf.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# Parts of the work of a run without planning, which runs in parallel.
PARTS = metrics_file.PARTS[1:]
HATCHES = ("", "///", "...", "xxx")
# Metrics of the spread over clients.
SPREADS = ("mean", "std", "std_noise", "worst_decile")
# Maximum runs in the figure of active clients.
MOST_PANELS = 12
# Inches of one row in a figure with one row for each run.
_ROW_HEIGHT = 0.28
# Maximum characters in a line of a run name.
_NAME_LENGTH = 28


def breakdowns(groups: dict[str, list[Run]]) -> list[Picture]:
    """Return the pictures of the accuracy of level models and of its spread over clients, if measured."""
    pictures, prefix = [], level_metric_prefix(groups)
    if prefix is not None:
        caption = (
            "The model of each level, cut from the global model, on the test set at the last measured round. Bars: "
            "standard deviation over seeds."
        )
        figure = draw_levels(level_values(groups, prefix), prefix)
        pictures.append(Picture("levels", "Models of the levels", caption, figure))
    if spreads := client_spreads(groups):
        caption = (
            "The global model on the test examples of each client at the last measured round, means over the seeds. A "
            "standard deviation near its noise floor is not significant: equally good clients would differ by chance."
        )
        pictures.append(Picture("clients", "Spread over clients", caption, draw_clients(spreads)))
    return pictures


def round_breakdowns(groups: dict[str, list[Run]]) -> list[Picture]:
    """Return the pictures of active clients and of the time by part of the work, if known."""
    pictures, omitted = [], len(groups) - MOST_PANELS
    if any(any(counts) for runs in groups.values() for counts in active_by_level(runs)[1].values()):
        caption = f"Active clients, means over the seeds.{f' {omitted} more runs are not drawn.' * (omitted > 0)}"
        pictures.append(Picture("mix", "Levels over the rounds", caption, draw_mix(groups)))
    if seconds := seconds_by_part(groups):
        caption = "Wall time by part of the work, means over the seeds; planning runs in parallel."
        pictures.append(Picture("time", "Time", caption, draw_time(seconds)))
    return pictures


def level_metric_prefix(groups: dict[str, list[Run]]) -> str | None:
    """Return the prefix of the measured level metrics; None if there are none."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    return next((begin for begin in level_prefixes() if any(name.startswith(begin) for name in known)), None)


def level_values(groups: dict[str, list[Run]], kind: str) -> dict[str, dict[str, list[float]]]:
    """Return `{name: {level: [value of each seed]}}` at the last measured round; unmeasured levels are omitted."""
    return {
        name: {level: values for level in sorted(runs[0].mix) if (values := _last_values(runs, f"{kind}{level}"))}
        for name, runs in groups.items()
    }


def _last_values(runs, metric):
    return [pairs[-1][1] for run in truncate_to_common_round(runs) if (pairs := metric_values(run, metric))]


def draw_levels(values_by_name: dict[str, dict[str, list[float]]], kind: str) -> "Figure":
    """Draw one point for each level and run, with a bar over its seeds; runs of a level are side by side."""
    levels = sorted({level for values in values_by_name.values() for level in values})
    names = [name for name, values in values_by_name.items() if values]
    figure = style.figure(2.9, names)
    panel, handles = figure.subplots(), []
    for index, values in enumerate(values_by_name.values()):
        if values:
            offset = 0.6 * ((index + 0.5) / len(values_by_name) - 0.5)
            xs = [levels.index(level) + offset for level in values]
            spreads = [(statistics.fmean(seeds), mean_and_spread(seeds)["spread"] or 0.0) for seeds in values.values()]
            spans = [(mean - spread, mean, mean + spread) for mean, spread in spreads]
            handles.append(style.error_bars(panel, xs, spans, style.line_style(index)))
    panel.set_xticks(range(len(levels)), [style.figure_text(level, 12) for level in levels])
    panel.grid(False, axis="x")
    panel.set(xlabel="level", ylabel=metric_label(f"{kind}LEVEL"), xlim=(-0.5, len(levels) - 0.5))
    style.legend(figure, handles, names)
    return figure


def client_spreads(groups: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Return `{name: {each of SPREADS}}` of the runs with client metrics.

    The values are percentages at the last measured round, means over the seeds; "std_noise", the standard deviation
    that equally good clients would have, is 0 if it was not measured.
    """
    spread_by_name = {}
    for name, runs in groups.items():
        last = {key: _last_values(runs, f"local_{key}") for key in SPREADS}
        if last["mean"] and last["std"] and last["worst_decile"]:
            spread_by_name[name] = {key: statistics.fmean(values or [0.0]) for key, values in last.items()}
    return spread_by_name


def draw_clients(spread_by_name: dict[str, dict[str, float]]) -> "Figure":
    """Draw one row for each run: mean over clients, standard deviation with its noise floor, and worst tenth."""
    labels = ["mean over clients", "± standard deviation", "± its noise floor", "worst tenth of the clients"]
    figure = style.figure(0.75 + _ROW_HEIGHT * len(spread_by_name), labels)
    panel, positions = figure.subplots(), list(range(len(spread_by_name)))
    values = {key: [row[key] for row in spread_by_name.values()] for key in SPREADS}

    def draw_intervals(deviations, **look):
        # Clip to the range of an accuracy.
        ends = [(max(mean - std, 0.0), min(mean + std, 100.0)) for mean, std in zip(values["mean"], deviations)]
        return panel.hlines(positions, *zip(*ends), **look)

    spread = draw_intervals(values["std"], color="#56B4E9", lw=5)
    floor = draw_intervals(values["std_noise"], color="#000000", lw=1)
    (mean,) = panel.plot(values["mean"], positions, color="#0072B2", ls="none", marker="o", markersize=5)
    (worst,) = panel.plot(values["worst_decile"], positions, color="#D55E00", ls="none", marker="X", markersize=6)
    _name_rows(panel, spread_by_name)
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
            calls = {part: [[row.get(f"{part}_seconds") for row in run.timings] for run in timed] for part in PARTS}
            sums = {part: [sum(filter(is_number, each)) for each in calls[part]] for part in PARTS}
            seconds_by_name[name] = {part: statistics.fmean(sums[part]) for part in PARTS}
    return seconds_by_name


def draw_time(seconds_by_name: dict[str, dict[str, float]]) -> "Figure":
    """Draw one bar for each run, divided into the parts of its work."""
    figure = style.figure(0.75 + _ROW_HEIGHT * len(seconds_by_name), PARTS)
    panel = figure.subplots()
    parts = [[0.0] * len(seconds_by_name), *([row[part] for row in seconds_by_name.values()] for part in PARTS)]
    looks = [
        {"color": colour, "hatch": hatch, "edgecolor": "white", "height": 0.7}
        for colour, hatch in zip(style.COLOURS, HATCHES)
    ]
    handles = style.stacked_bars(panel, parts, looks)
    _name_rows(panel, seconds_by_name)
    panel.set(xlabel="time of a run (s)")
    style.legend(figure, handles, PARTS)
    return figure


def _name_rows(panel, names: Iterable[str]) -> None:
    wrapped = (textwrap.wrap(style.figure_text(name), _NAME_LENGTH, max_lines=2, placeholder="...") for name in names)
    style.label_rows(panel, ["\n".join(lines) for lines in wrapped], 8)


# Maximum bars and seconds of a timeline, and timelines of a page.
MOST_BARS, MOST_SECONDS, MOST_PICTURES = 36, 1e15, 6
TIMELINE_COLOURS = {"download": "#56B4E9", "local training": "#0072B2", "upload": "#E69F00", "waiting": "#DDDDDD"}
# Inches of a bar.
BAR_HEIGHT = 0.13
MERGED = ("returned", "partial")


def timeline_pictures(groups: dict[str, list[Run]]) -> list[Picture]:
    """Return the timelines of the first seeds, at most `MOST_PICTURES`."""
    caption = (
        "Clients of the first rounds, those that end first on top. A client waits from the end of its upload until its "
        "result is merged."
    )
    bars_by_name = {name: timeline_bars(runs[0]) for name, runs in groups.items() if runs[0].timeline}
    drawn = {name: bars for name, bars in bars_by_name.items() if len(bars)}
    return [
        Picture(f"timeline-{number}", f"Timeline of {name}", caption, draw_timeline(bars))
        for number, (name, bars) in enumerate(list(drawn.items())[:MOST_PICTURES], 1)
    ]


def timeline_bars(run: Run) -> "DataFrame":
    """Return the clients of the first whole rounds that fit into a figure, those of a round in the order of their ends.

    Raises:
        Damaged: The timeline of the run has other content than `metrics_file.timeline_row`.
    """
    import pandas

    seconds = ["ended", "start", "download", "compute", "upload"]
    # The last row of a round counts, because a resumed run may repeat rounds.
    rounds = {row["round"]: row for row in run.timeline}.values()
    try:
        bars = pandas.json_normalize([*rounds], "clients", ["round", "ended"])
        bars = bars.reindex(columns=["round", "device", "level", "status", *seconds])
        bars = bars.astype({"status": str, **dict.fromkeys(seconds, float)})
        values = bars[seconds].to_numpy()
        if not ((values >= 0) & (values <= MOST_SECONDS)).all():
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        path = RunFolder(Path(run.folder)).timeline
        raise Damaged(f"{path}: must have the seconds of each client; delete the file") from error
    bars["end"] = bars[["start", "download", "compute", "upload"]].sum(axis=1)
    bars["waiting"] = (bars["ended"] - bars["end"]).clip(lower=0).where(bars["status"].isin(MERGED), 0)
    bars = bars.sort_values(["round", "end"], ignore_index=True)
    counts = bars.groupby("round").size().cumsum()
    whole = bars[bars["round"].isin(counts.index[counts <= MOST_BARS])]
    return whole if len(whole) else bars.head(MOST_BARS)


def draw_timeline(bars: "DataFrame") -> "Figure":
    """Draw one bar for each client, below those of the rounds before."""
    missing = bars.index[~bars["status"].isin(MERGED)]
    labels = [*TIMELINE_COLOURS, *["result not merged"][: len(missing)]]
    figure = style.figure(0.7 + BAR_HEIGHT * len(bars), labels)
    panel, unit = figure.subplots(), time_unit(bars["ended"].max())
    scaled = bars[["start", "download", "compute", "upload", "waiting", "end"]] / TIME_UNITS[unit]
    *parts, ends = (scaled[name].tolist() for name in scaled)
    looks = [{"color": colour, "height": 0.8} for colour in TIMELINE_COLOURS.values()]
    handles = style.stacked_bars(panel, parts, looks)
    if len(missing):
        at_ends = [ends[index] for index in missing]
        handles += panel.plot(at_ends, missing, color="#D55E00", marker="X", markersize=5, ls="none")
    style.label_rows(panel, [style.figure_text(f"{bar.device}, {bar.level}", 24) for bar in bars.itertuples()], 6)
    for round, indices in bars.groupby("round").indices.items():
        beside = panel.get_yaxis_transform()
        panel.text(1.01, indices.mean(), f"round {round}", transform=beside, fontsize=7, va="center")
        panel.axhline(indices[-1] + 0.5, color="#555555", linewidth=0.5)
    panel.set(xlabel=f"device time ({unit})")
    style.legend(figure, handles, labels)
    return figure
