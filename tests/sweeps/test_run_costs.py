"""Costs of the runs of a sweep equal those of their processes, and need no data beyond those on this machine."""

import dataclasses
from types import SimpleNamespace

import pytest
from refusals import refusal

from hetero_tf.data import NotAvailable
from hetero_tf.run.data import load_data
from hetero_tf.run.learning_process import learning_process
from hetero_tf.runs import metrics_file
from hetero_tf.runs.published import PublishedValue
from hetero_tf.sweeps import definition, run_costs
from hetero_tf.sweeps.definition import SweepFolder, expand


def runs_of(recipe, overrides=(), varied=(), seeds=None):
    return expand(definition.from_flags(recipe, overrides, varied, seeds), "typed")


@pytest.mark.parametrize(
    ("recipe", "mixes", "seeds"),
    [
        ("tiny/digits", "a,a-b,a1-b3", "0-1"),
        pytest.param("tiny/cifar10_vit_fedepth", "a,a1-b3", "0", marks=pytest.mark.long),
    ],
)
def test_costs_equal_those_of_each_process(recipe, mixes, seeds, monkeypatch):
    notes, built = [], []
    table, runs = run_costs.CostTable(None, notes.append), runs_of(recipe, ["rounds=5"], [f"levels.mix={mixes}"], seeds)
    level_costs = run_costs._level_costs
    monkeypatch.setattr(run_costs, "_level_costs", lambda *args: built.append(args) or level_costs(*args))
    for run in runs:
        costs, mix = table.costs_of(run), learning_process(run.recipe).mix_costs()["mix"]
        # Runs share the labels of their clients with the first seed.
        tolerance = 1e-12 if "seed=0" in run.overrides else 0.01
        for name in ("parameters", "multiply_adds", "bytes_down", "bytes_up"):
            assert costs[name] == pytest.approx(mix[name], rel=tolerance)
        assert costs["bytes"] == 5 * run.recipe.round.clients * (costs["bytes_down"] + costs["bytes_up"])
    # Levels a and b, in the order of the runs.
    assert len(built) == 2 and not notes


def test_nothing_is_downloaded(monkeypatch):
    requested = []

    def load(recipe, data_dir):
        requested.append(recipe.data.loader.options["download"])
        if recipe.data.fallback is None:
            raise NotAvailable("cifar10 is not prepared")
        return load_data(runs_of("tiny/digits")[0].recipe, None)

    monkeypatch.setattr(run_costs, "load_data", load)
    notes = []
    table = run_costs.CostTable(None, notes.append)
    without = [table.costs_of(run) for run in runs_of("cifar10", ["data.fallback=null"], [], "0-1")]
    assert without == [None, None] and requested == [False]
    assert notes == ["note: no costs without the data: cifar10 is not prepared"]


def test_stand_in_data_are_named(monkeypatch):
    notes = []
    table = run_costs.CostTable(None, notes.append)
    dataset = SimpleNamespace(stand_in_for="mnist", source="digits, standing in for mnist: no network")
    monkeypatch.setattr(run_costs, "load_data", lambda recipe, data_dir: dataset)
    assert table._dataset(runs_of("digits")[0].recipe) is dataset
    assert notes == ["note: mnist is not on this machine; costs are for digits"]


def test_stand_in_data_that_do_not_suffice_give_no_costs(monkeypatch):
    """The split of a sweep may need more examples than the data that stand in for its own."""
    dataset = load_data(runs_of("tiny/digits")[0].recipe, None)
    runs = runs_of("tiny/digits", ["partition={name: labels, clients: 5000, per_client: 2}"], [], "0-1")
    notes = []
    table = run_costs.CostTable(None, notes.append)
    monkeypatch.setattr(run_costs, "load_data", lambda recipe, data_dir: dataset)
    assert "partition" in refusal(table.costs_of, runs[0])
    dataset = dataclasses.replace(dataset, stand_in_for="mnist")
    table = run_costs.CostTable(None, notes.append)
    assert [table.costs_of(run) for run in runs] == [None, None]
    assert notes[1].startswith("note: no costs of some runs without mnist: ") and len(notes) == 2


def test_table_and_json(tmp_path):
    runs, folder = runs_of("digits", ["rounds=5"], ["levels.mix=a,b"]), SweepFolder(tmp_path)
    value = PublishedValue("table/row", "global_accuracy", 97.5, "A paper", "a setting")
    costs = dict(zip((*run_costs.COSTS, "bytes"), (786.0, 13_900.0, 2000.0, 1000.0, 2.5e9), strict=True))

    def rows():
        seconds = run_costs.expected_seconds(runs, folder)
        pairs = zip(runs, ((costs, [value]), (None, [])), strict=True)
        return [run_costs.to_json(run, costs, seconds.get(run.name), published) for run, (costs, published) in pairs]

    without_times = rows()
    assert without_times[0]["bytes_up"] == 1000.0 and without_times[0]["overrides"] == ["rounds=5", "levels.mix=a"]
    assert (without_times[1]["parameters"], without_times[1]["seconds"]) == (None, None)
    (folder.path / runs[1].name).mkdir()
    row = {"round": 2, "seconds": 100.0, "measuring_seconds": 20.0}
    metrics_file.append(folder.path / runs[1].name / "timings.jsonl", row)
    # A run without rows counts as the mean of the others.
    assert [row["seconds"] for row in rows()] == [300.0, 300.0]
    first = "digits-levels.mix=a       5         786         13.9 K                  3 KB   2.5 GB"
    second = "digits-levels.mix=b       5           -              -                     -        -"
    paper = "97.5 global_accuracy"
    assert run_costs.to_text(without_times).splitlines()[1:] == [f"{first}  {paper}", f"{second}  {'-':>20}"]
    assert run_costs.to_text(rows()).splitlines()[1:] == [
        f"{first}  5:00 min  {paper}",
        f"{second}  5:00 min  {'-':>20}",
    ]
