"""Times that devices report become a fleet of the simulator; invalid ones are refused like other wrong values."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from fleets import HonestDevice, LocalFleet

import hetero_tf
from hetero_tf.devices import device_rounds
from hetero_tf.devices.device_rounds import DEFAULT_SELECTION, Selection, deployed
from hetero_tf.devices.measured_fleet import MeasuredFleet
from hetero_tf.models.costs.level_costs import accumulate_totals
from hetero_tf.planning.fleets.devices import client_times, devices_of
from hetero_tf.recipe import load

OVERRIDES = (
    *("levels.assignment=fixed", "evaluate.statistics=clients", "engine=sequential"),
    *("partition.clients=4", "round.clients=4", "levels.mix=a-c", "client.batch_size=100"),
)


def reported(**times):
    return lambda message: dataclasses.replace(message, metadata={**message.metadata, **times})


@pytest.fixture(scope="module")
def process():
    return hetero_tf.learning_process(load("tiny/digits", OVERRIDES))


def rounds(process, path, wrong, count=1, selection=DEFAULT_SELECTION):
    """(rows of some rounds, messages) of devices whose responses `wrong` changes."""
    fleet = LocalFleet(process, {client: HonestDevice(process, client) for client in range(4)}, wrong)
    real, state, rows = deployed(process, fleet, selection, path), process.initialize(), []
    for _ in range(count):
        state, row = real.next(state)
        rows.append(row)
    return rows, fleet.messages


def test_the_fleet_of_a_run_loads_and_repeats_the_times_of_its_devices(process, tmp_path, eager):
    path, steps = tmp_path / "fleet.yaml", process.plan(0, cohort=[0]).steps[0]
    link = {"download_bytes": 4e6, "download_seconds": 2.0, "upload_bytes": 1e6, "upload_seconds": 4.0}
    seconds = {0: 1.0, 1: 0.25, 2: 2.0, 3: 0.25}
    changes = {client: reported(train_seconds=each, **link) for client, each in seconds.items()}
    rounds(process, path, changes, count=2)
    recipe = load("tiny/digits", (*OVERRIDES, f"fleet={path}"))
    # Deviations of +-log(2) / 2 at level a and 0 at c, of four devices and two medians.
    assert recipe.fleet.spread == pytest.approx(math.log(2) / 2, rel=1e-3)
    devices = devices_of(dataclasses.replace(recipe.fleet, spread=0), 0, np.arange(2), clients=4, levels=["a", "c"])
    times = client_times(devices, np.full(2, steps), np.ones(2), np.full(2, 4e6), np.full(2, 1e6))
    assert times.compute == pytest.approx([1.5, 0.25], rel=1e-3)
    assert times.download.tolist() == [2, 2] and times.upload.tolist() == [4, 4] and devices.dropout.tolist() == [0, 0]
    simulated = hetero_tf.learning_process(recipe)
    assert simulated.next(simulated.initialize())[0].round == 1


def test_seconds_of_a_round_are_those_of_the_clock(process, tmp_path, monkeypatch):
    seconds = iter((5.0, 7.5, 20.0, 21.0))
    monkeypatch.setattr(device_rounds, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    rows, _ = rounds(process, None, {}, count=2)
    assert [row["round_seconds"] for row in rows] == [2.5, 1.0] and "round_energy" not in rows[0]
    assert [row["device_seconds"] for row in accumulate_totals(rows, {})] == [2.5, 3.5]


def test_devices_that_drop_out_count_without_over_selection(process, tmp_path):
    path = tmp_path / "fleet.yaml"
    changes = {0: reported(train_seconds=1.0), 2: lambda message: None}
    for selection, dropout in ((DEFAULT_SELECTION, 0.5), (Selection(over_selection=0.5), 0.0)):
        rounds(process, path, changes, selection=selection)
        fleet = load("tiny/digits", (*OVERRIDES, f"fleet={path}", "fleet.assign=share")).fleet
        device = fleet.devices["a"]
        assert list(fleet.devices) == ["a"] and (device.dropout, device.down_mbit) == (dropout, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e7, 10**30, "1", True, None, [1.0]], ids=str)
def test_wrong_times_are_refused(process, value, tmp_path):
    (row,), messages = rounds(process, tmp_path / "fleet.yaml", {1: reported(train_seconds=value)})
    assert (row["refused"], row["non_finite"]) == (1, 0) and not (tmp_path / "fleet.yaml").exists()
    assert "client 1 was refused: train_seconds must be a number from 0 to 1e+06. Received: " in messages[0]


def test_devices_of_earlier_versions_report_no_times(process, tmp_path):
    (row,), _ = rounds(process, tmp_path / "fleet.yaml", {})
    assert (row["refused"], row["dropped"]) == (0, 0) and list(tmp_path.iterdir()) == []


def test_extreme_times_make_a_valid_fleet(tmp_path):
    measured, path = MeasuredFleet(), tmp_path / "fleet.yaml"
    tiny, huge = ({"train_seconds": each, "download_bytes": 1e15, "download_seconds": each} for each in (0, 1e6))
    measured.add_round({0: "a", 1: "a"}, {0, 1}, {0: 1, 1: 1}, {0: {**tiny, "download_seconds": 1e-300}, 1: huge})
    path.write_text(measured.to_yaml())
    fleet = load("tiny/digits", (f"fleet={path}", "levels.mix=a")).fleet
    assert fleet.spread == 10 and fleet.devices["a"].down_mbit > 0
