"""Timeline of the first rounds of a run: download, computation, upload and waiting of each client."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hetero_tf.base.units import TIME_UNITS, time_unit
from hetero_tf.reports import style
from hetero_tf.reports.style import Picture
from hetero_tf.runs.history import Run
from hetero_tf.runs.timeline import ClientSpan, RoundSpan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS, MOST_ROUNDS, MOST_PICTURES = 36, 4, 6
COLOURS = ("#56B4E9", "#0072B2", "#E69F00", "#DDDDDD")
LABELS = ("download", "local training", "upload", "waiting")
NOT_MERGED = "result not merged"
# Inches of a bar.
BAR_HEIGHT = 0.13
MERGED = ("returned", "partial")


def first_rounds(spans: Sequence[RoundSpan]) -> list[RoundSpan]:
    """Return the first rounds that fit into a figure, each with its clients in the order of their ends."""
    drawn: list[RoundSpan] = []
    room = MOST_BARS
    for span in spans[:MOST_ROUNDS]:
        clients = sorted(span.clients, key=lambda client: client.end)[:room]
        if not clients or drawn and len(clients) < len(span.clients):
            break
        drawn.append(RoundSpan(span.round, span.began, span.ended, clients))
        room -= len(clients)
    return drawn


def pictures(groups: dict[str, list[Run]]) -> list[Picture]:
    """Return the timelines of the first seeds, at most `MOST_PICTURES`."""
    drawn = {name: spans for name, runs in groups.items() if (spans := first_rounds(runs[0].timeline))}
    return [
        Picture(f"timeline-{number}", f"Timeline of {name}", describe(spans), draw(spans))
        for number, (name, spans) in enumerate(list(drawn.items())[:MOST_PICTURES], 1)
    ]


def describe(spans: Sequence[RoundSpan]) -> str:
    """Describe the rounds in numbers: their time, the share of waiting, the slowest client and missing results."""
    clients = [client for span in spans for client in span.clients]
    waiting = sum(_wait(client, span) for span in spans for client in span.clients)
    working = sum(client.end - client.start for client in clients)
    slowest = max(clients, key=lambda client: client.end - client.start)
    rounds = f"Round {spans[0].round}" if len(spans) == 1 else f"Rounds {spans[0].round} to {spans[-1].round}"
    return (
        f"{rounds} take {_duration(spans[-1].ended - min(client.start for client in clients))} of device time. Clients "
        f"wait for {100 * waiting / (waiting + working or 1):.0f} % of it. The slowest client, a device "
        f"{slowest.device} at level {slowest.level}, takes {_duration(slowest.end - slowest.start)}. "
        f"{sum(client.status in MERGED for client in clients)} of {len(clients)} results are merged."
    )


def _duration(seconds):
    unit = time_unit(seconds)
    return f"{seconds / TIME_UNITS[unit]:.3g} {unit}"


def _wait(client: ClientSpan, span: RoundSpan) -> float:
    """Return the seconds between the end of a client's work and the merge of its result; 0 without a merge."""
    return max(span.ended - client.end, 0.0) if client.status in MERGED else 0.0


def draw(spans: Sequence[RoundSpan]) -> "Figure":
    """Draw one bar for each client, below those of the rounds before."""
    bars = [(client, span) for span in spans for client in span.clients]
    missing = [index for index, (client, _) in enumerate(bars) if client.status not in MERGED]
    labels = [*LABELS, *([NOT_MERGED] if missing else [])]
    figure = style.figure(0.7 + BAR_HEIGHT * len(bars), labels)
    panel, unit = figure.subplots(), time_unit(max(span.ended for span in spans))
    scale = TIME_UNITS[unit]
    seconds = [(each.start, each.download, each.compute, each.upload, _wait(each, span)) for each, span in bars]
    parts = [[value / scale for value in part] for part in zip(*seconds)]
    handles = style.stacked_bars(panel, parts, [{"color": colour, "height": 0.8} for colour in COLOURS])
    if missing:
        ends = [bars[index][0].end / scale for index in missing]
        handles += panel.plot(ends, missing, color="#D55E00", marker="X", markersize=5, ls="none")
    style.label_rows(panel, [style.figure_text(f"{each.device}, {each.level}", 24) for each, _ in bars], 6)
    top = -0.5
    for span in spans:
        bottom = top + len(span.clients)
        look: dict[str, Any] = {"transform": panel.get_yaxis_transform(), "fontsize": 7, "va": "center"}
        panel.text(1.01, (top + bottom) / 2, f"round {span.round}", **look)
        panel.axhline(bottom, color="#555555", linewidth=0.5)
        top = bottom
    panel.set(xlabel=f"device time ({unit})")
    style.legend(figure, handles, labels)
    return figure
