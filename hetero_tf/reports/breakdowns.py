"""Where results and time come from: levels, clients, active levels of the rounds, parts of the work."""

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetero_tf.reports import style
from hetero_tf.reports.figures import metric_label
from hetero_tf.reports.summaries import OF_LEVELS, active, known_metrics, measured
from hetero_tf.runs.history import Run, is_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of the work of a run; planning runs beside them.
PARTS = ("training", "merging", "measuring", "sealing")
HATCHES = ("", "///", "...", "xxx")
# Runs whose active clients are drawn one below the other, at most.
MOST_PANELS = 12
# Inches of a run in a figure with one line or bar for each.
_OF_A_RUN = 0.28
# Characters of a line of a name beside it.
_NAME = 28


@dataclass(frozen=True)
class Clients:
    """How evenly the clients of some runs are served at the last measured round: percent, means over the seeds.

    Attributes:
        mean, std: Of the accuracy over clients.
        noise: What the standard deviation would be if all clients were equally good; None where nobody measured it.
        worst: Mean of the worst tenth of the clients.
    """

    mean: float
    std: float
    noise: float | None
    worst: float


def levels_kind(groups: dict[str, list[Run]]) -> str | None:
    """How the metrics of levels begin that the runs have measured; None where they have not."""
    known = known_metrics(run for runs in groups.values() for run in runs)
    return next((begin for begin in OF_LEVELS if any(name.startswith(begin) for name in known)), None)


def of_levels(groups: dict[str, list[Run]], kind: str) -> dict[str, dict[str, list[float]]]:
    """`{name: {level: [value of each seed]}}` at the last measured round; no levels where none was measured."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, runs in groups.items():
        found[name] = {}
        for level in sorted(runs[0].mix):
            values = [pairs[-1][1] for run in runs if (pairs := measured(run, f"{kind}{level}"))]
            if values:
                found[name][level] = values
    return found


def draw_levels(found: dict[str, dict[str, list[float]]], kind: str) -> "Figure":
    """A point for each level and run, with a bar over its seeds; the runs of a level stand beside each other."""
    levels = sorted({level for values in found.values() for level in values})
    names = [name for name, values in found.items() if values]
    figure = style.figure(2.9, names)
    panel, handles = figure.subplots(), []
    for place, values in enumerate(found.values()):
        if not values:
            continue
        look = style.line(place)
        aside = 0.6 * ((place + 0.5) / len(found) - 0.5)
        xs = [levels.index(level) + aside for level in values]
        means = [statistics.fmean(seeds) for seeds in values.values()]
        ends = [
            [mean - min(seeds) for mean, seeds in zip(means, values.values())],
            [max(seeds) - mean for mean, seeds in zip(means, values.values())],
        ]
        handles.append(
            panel.errorbar(
                xs, means, ends, color=look["color"], ls="none", marker=look["marker"], capsize=2, elinewidth=1
            )
        )
    panel.set_xticks(range(len(levels)), [style.text(level, 12) for level in levels])
    panel.set_xticks([place + 0.5 for place in range(len(levels) - 1)], minor=True)
    panel.grid(False, axis="x")
    panel.grid(True, axis="x", which="minor")
    panel.tick_params(axis="x", which="minor", length=0)
    panel.set(xlabel="level", ylabel=metric_label(f"{kind}LEVEL"), xlim=(-0.5, len(levels) - 0.5))
    style.legend(figure, handles, names)
    return figure


def of_clients(groups: dict[str, list[Run]]) -> dict[str, Clients]:
    """`{name: Clients}` of those that have measured it."""
    found = {}
    for name, runs in groups.items():
        last = {
            key: [pairs[-1][1] for run in runs if (pairs := measured(run, f"local_{key}"))]
            for key in ("mean", "std", "std_noise", "worst_decile")
        }
        if last["mean"] and last["std"] and last["worst_decile"]:
            mean, std, worst = (statistics.fmean(last[key]) for key in ("mean", "std", "worst_decile"))
            found[name] = Clients(mean, std, statistics.fmean(last["std_noise"]) if last["std_noise"] else None, worst)
    return found


def draw_clients(found: dict[str, Clients]) -> "Figure":
    """A line for each run: mean over the clients, standard deviation and its noise floor, worst tenth."""
    labels = ["mean over clients", "± standard deviation", "± its noise floor", "worst tenth of the clients"]
    figure = style.figure(0.75 + _OF_A_RUN * len(found), labels)
    panel, places = figure.subplots(), list(range(len(found)))
    rows = list(found.values())
    means = [row.mean for row in rows]
    # No client is better than 100 %, whatever mean and deviation say.
    ends = [(max(row.mean - row.std, 0.0), min(row.mean + row.std, 100.0)) for row in rows]
    spread = panel.hlines(places, *zip(*ends), color="#56B4E9", lw=5)
    noise = [row.noise or 0.0 for row in rows]
    floor = panel.hlines(
        places,
        [max(mean - by_chance, 0.0) for mean, by_chance in zip(means, noise)],
        [min(mean + by_chance, 100.0) for mean, by_chance in zip(means, noise)],
        color="#000000",
        lw=1,
    )
    (mean,) = panel.plot(means, places, color="#0072B2", ls="none", marker="o", markersize=5)
    (worst,) = panel.plot([row.worst for row in rows], places, color="#D55E00", ls="none", marker="X", markersize=6)
    _name_rows(panel, list(found))
    panel.set(xlabel="accuracy of a client (%)")
    style.legend(figure, [mean, spread, floor, worst], labels)
    return figure


def of_mix(runs: Sequence[Run]) -> tuple[list[int], dict[str, list[float]]]:
    """The rounds that all seeds have, and `{level: [active clients in each]}`, means over the seeds."""
    rows = [{row["round"]: active(row) for row in run.rows} for run in runs]
    rounds = sorted(set.intersection(*(set(one) for one in rows)))
    return rounds, {
        level: [statistics.fmean(one[round].get(level, 0) for one in rows) for round in rounds]
        for level in sorted(runs[0].mix)
    }


def draw_mix(groups: dict[str, list[Run]]) -> "Figure":
    """Active clients of each level, round by round: the levels stand on top of each other, a panel for each run."""
    from matplotlib import colormaps
    from matplotlib.ticker import MaxNLocator

    shown = {name: of_mix(runs) for name, runs in list(groups.items())[:MOST_PANELS]}
    levels = sorted({level for _, many in shown.values() for level in many})
    # The widest level is the darkest.
    colours = {level: colormaps["Blues"](0.95 - 0.7 * place / len(levels)) for place, level in enumerate(levels)}
    labels = [f"level {level}" for level in levels]
    figure = style.figure(0.5 + 0.75 * len(shown), labels)
    panels = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for panel, (name, (rounds, many)) in zip(panels, shown.items()):
        bottom = [0.0] * len(rounds)
        for level, counts in many.items():
            bars = panel.bar(rounds, counts, 1.0, bottom, color=colours[level], edgecolor="white", linewidth=0.3)
            handles.setdefault(level, bars)
            bottom = [low + high for low, high in zip(bottom, counts)]
        panel.set_title(style.text(name), loc="left", pad=3)
        panel.grid(False)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    panels[-1].set(xlabel="round")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supylabel("active clients", fontsize=9)
    style.legend(figure, [handles[level] for level in levels], labels)
    return figure


def of_time(groups: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """`{name: {part: seconds}}` of the runs that were timed: sums over their calls, means over the seeds."""
    found = {}
    for name, runs in groups.items():
        timed = [run for run in runs if any("training_seconds" in row for row in run.timings)]
        if timed:
            found[name] = {part: statistics.fmean(_seconds(run, part) for run in timed) for part in PARTS}
    return found


def _seconds(run, part):
    values = (row.get(f"{part}_seconds") for row in run.timings)
    return sum(value for value in values if is_number(value))


def draw_time(found: dict[str, dict[str, float]]) -> "Figure":
    """A bar for each run, cut into the parts of its work."""
    figure = style.figure(0.75 + _OF_A_RUN * len(found), PARTS)
    panel, places, handles = figure.subplots(), list(range(len(found))), []
    left = [0.0] * len(found)
    for number, part in enumerate(PARTS):
        seconds = [parts[part] for parts in found.values()]
        look: dict[str, Any] = {
            "color": style.COLOURS[number],
            "hatch": HATCHES[number],
            "edgecolor": "white",
            "linewidth": 0,
        }
        handles.append(panel.barh(places, seconds, 0.7, left, **look))
        left = [begin + more for begin, more in zip(left, seconds)]
    _name_rows(panel, list(found))
    panel.set(xlabel="time of a run (s)")
    style.legend(figure, handles, PARTS)
    return figure


def _name_rows(panel, names: Iterable[str]) -> None:
    """Names of runs from top to bottom."""
    texts = ["\n".join(textwrap.wrap(style.text(name), _NAME, max_lines=2, placeholder="...")) for name in names]
    panel.set_yticks(range(len(texts)), texts, fontsize=7 if any("\n" in text for text in texts) else 8)
    panel.set_ylim(len(texts) - 0.4, -0.6)
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
