"""Levels, clients, active levels, time, and timelines of clients: the numbers, and that a figure draws them."""

import dataclasses

import pytest

from hetero_tf.base.files import Damaged
from hetero_tf.reports import breakdowns, figures, style
from hetero_tf.runs.history import gather, grouped

pytest.importorskip("matplotlib")
CLIENTS = {"local_mean": 90.0, "local_std": 15.0, "local_std_noise": 4.0, "local_worst_decile": 40.0}
LEVELS = {"level_accuracy_a": 50.0, "level_accuracy_c": 20.0}


@pytest.fixture
def groups(write_run):
    """Two seeds of one recipe that measured everything, and a run that measured little."""
    wide = ("name=wide", "levels.mix=a-c")
    folders = [
        write_run("w0", [10.0, 20.0], *wide, more={**CLIENTS, **LEVELS}, seconds=2.0),
        write_run("w1", [10.0], *wide, "seed=1", "rounds=2", more=CLIENTS | {"local_mean": 80.0}),
        write_run("bare", [5.0], "name=bare", "levels.mix=a"),
    ]
    return grouped(gather(folders)[0])


@pytest.fixture(autouse=True)
def in_style():
    with style.figure_style("plot"):
        yield


def labels(ticks):
    return [label.get_text() for label in ticks]


def test_level_values_have_one_value_per_measured_seed(groups):
    assert breakdowns.level_metric_prefix(groups) == "level_accuracy_"
    values = breakdowns.level_values(groups, "level_accuracy_")
    assert values == {"wide": {"a": [50.0], "c": [20.0]}, "bare": {}}
    figure = breakdowns.draw_levels(values, "level_accuracy_")
    (panel,), (legend,) = figure.axes, figure.legends
    assert labels(panel.get_xticklabels()) == ["a", "c"] and panel.get_ylabel() == "accuracy of a level's model (%)"
    assert labels(legend.get_texts()) == ["wide"]
    assert breakdowns.level_metric_prefix({"bare": groups["bare"]}) is None


def test_client_spreads_are_means_clipped_at_100_percent(groups):
    spreads = breakdowns.client_spreads(groups)
    assert spreads == {"wide": {"mean": 85.0, "std": 15.0, "std_noise": 4.0, "worst_decile": 40.0}}
    spreads["better"] = {"mean": 95.0, "std": 15.0, "std_noise": 0.0, "worst_decile": 60.0}
    (panel,) = breakdowns.draw_clients(spreads).axes
    spread, noise = panel.collections
    assert [segment[:, 0].tolist() for segment in spread.get_segments()] == [[70, 100], [80, 100]]
    assert [segment[:, 0].tolist() for segment in noise.get_segments()] == [[81, 89], [95, 95]]
    assert [line.get_xdata().tolist() for line in panel.get_lines()] == [[85, 95], [40, 60]]
    assert labels(panel.get_yticklabels()) == ["wide", "better"]


def test_last_values_are_those_of_the_last_common_round(write_run):
    """A seed that is behind is not averaged with later rounds of another one."""
    folders = [write_run("r0", [10.0, 20.0, 90.0], sizes={"a": 4000}, seconds=2.0)]
    folders.append(write_run("r1", [30.0, 40.0], "seed=1", "rounds=3", sizes={"a": 4000}, seconds=2.0))
    runs = grouped(gather(folders)[0])
    for row in (row for run in runs["tiny_digits"] for row in run.rows):
        row["level_accuracy_a"] = row["global_accuracy"]
    assert breakdowns.level_values(runs, "level_accuracy_") == {"tiny_digits": {"a": [20.0, 40.0]}}
    ((point,),) = (one.points for one in figures.size_series(runs, "global_accuracy", "parameters"))
    assert (point.mean, point.high) == ([30], pytest.approx([30 + 200**0.5]))
    assert breakdowns.seconds_by_part(runs)["tiny_digits"]["training"] == 4


def test_active_levels_are_stacked_at_common_rounds(groups):
    assert breakdowns.active_by_level(groups["wide"]) == ([1], {"a": [1.0], "c": [1.0]})
    figure = breakdowns.draw_mix(groups)
    assert [panel.get_title("left") for panel in figure.axes] == ["wide", "bare"]
    first, second = figure.axes[0].patches
    assert (first.get_y(), first.get_height(), second.get_y(), second.get_height()) == (0, 1, 1, 1)


def test_time_needs_timings(groups):
    seconds = breakdowns.seconds_by_part(groups)
    assert seconds == {"wide": {"training": 4.0, "merging": 0, "measuring": 2.0, "sealing": 0}}
    (panel,) = breakdowns.draw_time(seconds).axes
    assert [(bar.get_x(), bar.get_width()) for bar in panel.patches] == [(0, 4), (4, 0), (4, 2), (6, 0)]


def timeline_row(round, ends, status="returned"):
    """A round of ten seconds whose clients upload until `ends`."""
    began = 10.0 * (round - 1)
    client = {"device": "phone", "level": "a", "start": began, "download": 1.0, "compute": 2.0, "status": status}
    clients = [{**client, "client": index, "upload": end - 3} for index, end in enumerate(ends)]
    return {"round": round, "began": began, "ended": began + 10, "clients": clients}


@pytest.fixture
def bars_of(groups):
    return lambda *rows: breakdowns.timeline_bars(dataclasses.replace(groups["bare"][0], timeline=list(rows)))


def test_bars_of_clients_are_sorted_by_their_ends_and_last_until_the_end_of_the_round(bars_of):
    # A resumed run repeats rounds.
    bars = bars_of(timeline_row(1, [7.0]), timeline_row(1, [10.0, 4.0]), timeline_row(2, [5.0], "dropped"))
    (panel,) = breakdowns.draw_timeline(bars).axes
    # Download, training, upload and waiting of three clients.
    assert [[(bar.get_x(), bar.get_width()) for bar in container] for container in panel.containers] == [
        [(0, 1), (0, 1), (10, 1)],
        [(1, 2), (1, 2), (11, 2)],
        [(3, 1), (3, 7), (13, 2)],
        [(4, 6), (10, 0), (15, 0)],
    ]
    (missing,) = [line for line in panel.get_lines() if line.get_marker() == "X"]
    assert (list(missing.get_xdata()), list(missing.get_ydata())) == ([15], [2])
    assert labels(panel.get_yticklabels()) == ["phone, a"] * 3 and {"round 1", "round 2"} <= set(labels(panel.texts))
    assert panel.get_xlabel() == "device time (s)"


def test_timeline_has_as_many_whole_rounds_as_fit(bars_of):
    many = bars_of(timeline_row(1, [9.0] * 99), timeline_row(2, [5.0]))
    assert many["round"].tolist() == [1] * breakdowns.MOST_BARS
    few = bars_of(*(timeline_row(round, [9.0] * 16) for round in (1, 2, 3)))
    assert few["round"].unique().tolist() == [1, 2]
    assert len(bars_of(timeline_row(1, []))) == 0


@pytest.mark.parametrize("changes", [{"ended": -1}, {"ended": 1e99}, {"clients": [{}]}, {"clients": 3}])
def test_other_content_of_a_timeline_is_refused(bars_of, changes):
    with pytest.raises(Damaged, match=r"timeline.jsonl: must have the seconds of each client; delete the file$"):
        bars_of(timeline_row(1, [5.0]) | changes)
