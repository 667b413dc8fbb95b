"""Levels, clients, active levels and time: the numbers, and that a figure draws them."""

import json

import pytest

from hetero_tf.reports import breakdowns, curves, style
from hetero_tf.runs.history import gather, grouped

pytest.importorskip("matplotlib")
CLIENTS = {"local_mean": 90.0, "local_std": 15.0, "local_std_noise": 4.0, "local_worst_decile": 40.0}


@pytest.fixture
def groups(write_run):
    """Two seeds of one recipe that measured everything, and a run that measured little."""
    levels = {"level_accuracy_a": 50.0, "level_accuracy_c": 20.0}
    folders = [
        write_run("w0", [10.0, 20.0], "name=wide", "levels.mix=a-c", more={**CLIENTS, **levels}, seconds=2.0),
        write_run(
            "w1", [10.0], "name=wide", "levels.mix=a-c", "seed=1", "rounds=2", more=CLIENTS | {"local_mean": 80.0}
        ),
        write_run("bare", [5.0], "name=bare", "levels.mix=a"),
    ]
    return grouped(gather(folders)[0])


@pytest.fixture
def in_style():
    with style.figure_style("plot"):
        yield


def test_level_values_have_one_value_per_measured_seed(groups, in_style):
    assert breakdowns.level_metric_prefix(groups) == "level_accuracy_"
    values = breakdowns.level_values(groups, "level_accuracy_")
    assert values == {"wide": {"a": [50.0], "c": [20.0]}, "bare": {}}
    figure = breakdowns.draw_levels(values, "level_accuracy_")
    (panel,), (legend,) = figure.axes, figure.legends
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "c"]
    assert panel.get_ylabel() == "accuracy of a level's model (%)"
    assert [text.get_text() for text in legend.get_texts()] == ["wide"]
    assert breakdowns.level_metric_prefix({"bare": groups["bare"]}) is None


def test_client_spreads_are_means_clipped_at_100_percent(groups, in_style):
    spreads = breakdowns.client_spreads(groups)
    assert spreads == {"wide": breakdowns.ClientSpread(mean=85.0, std=15.0, noise=4.0, worst=40.0)}
    spreads["better"] = breakdowns.ClientSpread(mean=95.0, std=15.0, noise=None, worst=60.0)
    (panel,) = breakdowns.draw_clients(spreads).axes
    spread, noise = panel.collections
    assert [segment[:, 0].tolist() for segment in spread.get_segments()] == [[70, 100], [80, 100]]
    assert [segment[:, 0].tolist() for segment in noise.get_segments()] == [[81, 89], [95, 95]]
    assert [line.get_xdata().tolist() for line in panel.get_lines()] == [[85, 95], [40, 60]]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["wide", "better"]


def test_last_values_are_those_of_the_last_common_round(write_run):
    """A seed that is behind is not averaged with later rounds of another one."""
    levels = [write_run("r0", [10.0, 20.0, 90.0], sizes={"a": 4000}, seconds=2.0)]
    levels.append(write_run("r1", [30.0, 40.0], "seed=1", "rounds=3", sizes={"a": 4000}, seconds=2.0))
    runs = grouped(gather(levels)[0])
    for run in runs["tiny_digits"]:
        for row in run.rows:
            row["level_accuracy_a"] = row["global_accuracy"]
    assert breakdowns.level_values(runs, "level_accuracy_") == {"tiny_digits": {"a": [20.0, 40.0]}}
    ((point,),) = (one.points for one in curves.size_series(runs, "global_accuracy", "parameters", "range"))
    assert (point.low, point.mean, point.high) == (20, 30, 40)
    assert breakdowns.seconds_by_part(runs)["tiny_digits"]["training"] == 4


def test_active_levels_are_stacked_at_common_rounds(groups, in_style):
    assert breakdowns.active_by_level(groups["wide"]) == ([1], {"a": [1.0], "c": [1.0]})
    assert breakdowns.active_by_level(groups["bare"]) == ([1], {"a": [1.0]})
    figure = breakdowns.draw_mix(groups)
    assert [panel.get_title("left") for panel in figure.axes] == ["wide", "bare"]
    first, second = figure.axes[0].patches
    assert (first.get_y(), first.get_height(), second.get_y(), second.get_height()) == (0, 1, 1, 1)


def test_time_needs_timings(groups, in_style):
    seconds = breakdowns.seconds_by_part(groups)
    assert seconds == {"wide": {"training": 4.0, "merging": 0, "measuring": 2.0, "sealing": 0}}
    (panel,) = breakdowns.draw_time(seconds).axes
    assert [(bar.get_x(), bar.get_width()) for bar in panel.patches] == [(0, 4), (4, 0), (4, 2), (6, 0)]
    assert panel.get_xlabel() == "time of a run (s)"


def test_incomplete_rows_are_ignored(write_run, tmp_path):
    folder = tmp_path / "odd"
    write_run("odd", [10.0])
    row = {"round": 1, "levels": "many", "global_accuracy": "high", "bytes": True, "loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "timings.jsonl").write_text('{"round":1,"training_seconds":"long"}\n')
    groups_of_runs = grouped(gather([folder])[0])
    assert breakdowns.active_by_level(groups_of_runs["tiny_digits"])[1] == {"a": [0], "b": [0], "c": [0]}
    assert breakdowns.seconds_by_part(groups_of_runs)["tiny_digits"]["training"] == 0
