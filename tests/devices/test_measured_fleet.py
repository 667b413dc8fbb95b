"""Times that devices report become a fleet of the simulator; invalid ones are refused like other wrong values."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
from fleets import HonestDevice, LocalFleet

import hetero_tf
from hetero_tf.devices import device_rounds
from hetero_tf.devices.device_rounds import deployed
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


def rounds(process, path, wrong, count=1):
    """(rows of some rounds, messages) of devices whose responses `wrong` changes."""
    fleet = LocalFleet(process, {client: HonestDevice(process, client) for client in range(4)}, wrong)
    real, state, rows = deployed(process, fleet, fleet_file=path), process.initialize(), []
    for _ in range(count):
        state, row = real.next(state)
        rows.append(row)
    return rows, fleet.messages


def test_the_fleet_of_a_run_loads_and_repeats_the_times_of_its_devices(process, tmp_path, eager):
    path, steps = tmp_path / "fleet.yaml", process.plan(0, cohort=[0]).steps[0]
    seconds = {0: 1.0, 1: 0.25, 2: 2.0, 3: 0.25}
    changes = {client: reported(train_seconds=each) for client, each in seconds.items()}
    rounds(process, path, changes, count=2)
    recipe = load("tiny/digits", (*OVERRIDES, f"fleet={path}"))
    devices = devices_of(recipe.fleet, 0, np.arange(2), clients=4, levels=["a", "c"])
    times = client_times(devices, np.full(2, steps), np.ones(2), np.full(2, 4e6), np.full(2, 1e6))
    assert times.compute == pytest.approx([1.5, 0.25], rel=1e-3)
    simulated = hetero_tf.learning_process(recipe)
    assert simulated.next(simulated.initialize())[0].round == 1


def test_seconds_of_a_round_are_those_of_the_clock(process, tmp_path, monkeypatch):
    seconds = iter((5.0, 7.5, 20.0, 21.0))
    monkeypatch.setattr(device_rounds, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    rows, _ = rounds(process, None, {}, count=2)
    assert [row["round_seconds"] for row in rows] == [2.5, 1.0] and "round_energy" not in rows[0]
    assert [row["device_seconds"] for row in accumulate_totals(rows, {})] == [2.5, 3.5]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e7, 10**30, "1", True, None, [1.0]], ids=str)
def test_wrong_times_are_refused(process, value, tmp_path):
    (row,), messages = rounds(process, tmp_path / "fleet.yaml", {1: reported(train_seconds=value)})
    assert (row["refused"], row["non_finite"]) == (1, 0) and not (tmp_path / "fleet.yaml").exists()
    assert "client 1 was refused: train_seconds must be a number from 0 to 1e+06. Received: " in messages[0]


def test_devices_of_earlier_versions_report_no_times(process, tmp_path):
    (row,), _ = rounds(process, tmp_path / "fleet.yaml", {})
    assert (row["refused"], row["dropped"]) == (0, 0) and list(tmp_path.iterdir()) == []


def test_extreme_times_make_a_valid_fleet(tmp_path):
    path = tmp_path / "fleet.yaml"
    for seconds, expected in ((0, 1e-9), (1e6, 1e6)):
        measured = MeasuredFleet()
        measured.add_round({0: "a"}, {0: 1}, {0: seconds})
        path.write_text(measured.to_yaml())
        fleet = load("tiny/digits", (f"fleet={path}", "levels.mix=a")).fleet
        assert fleet.devices["a"].seconds_per_step == expected
