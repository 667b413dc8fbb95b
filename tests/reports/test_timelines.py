"""Timelines: one bar for each client of the first rounds."""

import dataclasses

import pytest

from hetero_tf.reports import style, timelines
from hetero_tf.runs.timeline import ClientSpan, RoundSpan

pytest.importorskip("matplotlib")


def span(round, ends, status="returned"):
    """A round of ten seconds whose clients upload until `ends`."""
    began = 10.0 * (round - 1)
    client = ClientSpan(
        client=0, device="phone", level="a", start=began, download=1.0, compute=2.0, upload=0.0, status=status
    )
    clients = [dataclasses.replace(client, client=index, upload=end - 3) for index, end in enumerate(ends)]
    return RoundSpan(round, began, began + 10, clients)


def test_bars_are_sorted_by_their_ends_and_last_until_the_end_of_the_round():
    spans = timelines.first_rounds([span(1, [10.0, 4.0]), span(2, [5.0], "dropped")])
    with style.figure_style("report"):
        figure = timelines.draw(spans)
    (panel,) = figure.axes
    # Download, training, upload and waiting of three clients.
    bars = [[(bar.get_x(), bar.get_width()) for bar in container] for container in panel.containers]
    assert bars == [
        [(0, 1), (0, 1), (10, 1)],
        [(1, 2), (1, 2), (11, 2)],
        [(3, 1), (3, 7), (13, 2)],
        [(4, 6), (10, 0), (15, 0)],
    ]
    (missing,) = [line for line in panel.get_lines() if line.get_marker() == "X"]
    assert (list(missing.get_xdata()), list(missing.get_ydata())) == ([15], [2])
    assert [label.get_text() for label in panel.get_yticklabels()] == ["phone, a"] * 3
    assert {"round 1", "round 2"} <= {text.get_text() for text in panel.texts}
    assert panel.get_xlabel() == "device time (s)"
    assert timelines.describe(spans) == (
        "Rounds 1 to 2 take 20 s of device time. Clients wait for 24 % of it. The slowest client, a device phone at level "
        "a, takes 10 s. 2 of 3 results are merged."
    )


def test_figure_has_as_many_whole_rounds_as_fit():
    many = timelines.first_rounds([span(1, [9.0] * 99), span(2, [5.0])])
    assert [(each.round, len(each.clients)) for each in many] == [(1, timelines.MOST_BARS)]
    few = timelines.first_rounds([span(round, [9.0] * 16) for round in (1, 2, 3)])
    assert [each.round for each in few] == [1, 2]
    assert timelines.first_rounds([RoundSpan(1, 0.0, 1.0, [])]) == []
