"""Levels, clients, active levels and time: the numbers, and that a figure draws them."""

import json

import pytest

from hetero_tf.reports import breakdowns, style
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
    with style.in_use("plot"):
        yield


def test_levels_have_a_value_of_each_seed_that_measured_them(groups, in_style):
    assert breakdowns.levels_kind(groups) == "level_accuracy_"
    found = breakdowns.of_levels(groups, "level_accuracy_")
    assert found == {"wide": {"a": [50.0], "c": [20.0]}, "bare": {}}
    figure = breakdowns.draw_levels(found, "level_accuracy_")
    (panel,), (legend,) = figure.axes, figure.legends
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "c"]
    assert panel.get_ylabel() == "accuracy of a level's model (%)"
    assert [text.get_text() for text in legend.get_texts()] == ["wide"]
    assert breakdowns.levels_kind({"bare": groups["bare"]}) is None


def test_clients_are_means_over_the_seeds_and_end_at_a_hundred_percent(groups, in_style):
    found = breakdowns.of_clients(groups)
    assert found == {"wide": breakdowns.Clients(mean=85.0, std=15.0, noise=4.0, worst=40.0)}
    found["better"] = breakdowns.Clients(mean=95.0, std=15.0, noise=None, worst=60.0)
    (panel,) = breakdowns.draw_clients(found).axes
    spread, noise = panel.collections
    assert [segment[:, 0].tolist() for segment in spread.get_segments()] == [[70, 100], [80, 100]]
    assert [segment[:, 0].tolist() for segment in noise.get_segments()] == [[81, 89], [95, 95]]
    assert [line.get_xdata().tolist() for line in panel.get_lines()] == [[85, 95], [40, 60]]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["wide", "better"]


def test_active_levels_stand_on_top_of_each_other_at_the_rounds_that_all_seeds_have(groups, in_style):
    assert breakdowns.of_mix(groups["wide"]) == ([1], {"a": [1.0], "c": [1.0]})
    assert breakdowns.of_mix(groups["bare"]) == ([1], {"a": [1.0]})
    figure = breakdowns.draw_mix(groups)
    assert [panel.get_title("left") for panel in figure.axes] == ["wide", "bare"]
    first, second = figure.axes[0].patches
    assert (first.get_y(), first.get_height(), second.get_y(), second.get_height()) == (0, 1, 1, 1)


def test_time_is_that_of_the_runs_that_were_timed(groups, in_style):
    found = breakdowns.of_time(groups)
    assert found == {"wide": {"training": 4.0, "merging": 0, "measuring": 2.0, "sealing": 0}}
    (panel,) = breakdowns.draw_time(found).axes
    assert [(bar.get_x(), bar.get_width()) for bar in panel.patches] == [(0, 4), (4, 0), (4, 2), (6, 0)]
    assert panel.get_xlabel() == "time of a run (s)"


def test_rows_that_tell_nothing_are_passed_over(write_run, tmp_path):
    folder = tmp_path / "odd"
    write_run("odd", [10.0])
    row = {"round": 1, "levels": "many", "global_accuracy": "high", "bytes": True, "loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "timings.jsonl").write_text('{"round":1,"training_seconds":"long"}\n')
    found = grouped(gather([folder])[0])
    assert breakdowns.of_mix(found["tiny_digits"])[1] == {"a": [0], "b": [0], "c": [0]}
    assert breakdowns.of_time(found)["tiny_digits"]["training"] == 0
