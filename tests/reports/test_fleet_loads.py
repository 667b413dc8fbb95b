"""Time, memory and energy of each level on each device, as the planned rounds have them."""

import json

import pytest
import tiny

from hetero_tf.planning.fleets.device_table import memory_bytes
from hetero_tf.reports.describe import describe, fleet, to_json, to_text

# One operation of `slow` takes 1 us and one byte of its upload 1 us.
DEVICES = (
    "{fast: {seconds_per_step: 0.5, memory: 1 MiB, train_watts: 4}, "
    "slow: {gflops: 0.001, up_mbit: 8, memory: 0.001 MiB, radio_watts: 2}}"
)
FLEET = f"fleet={{devices: {DEVICES}, spread: 0.5}}"


NAMES = ("policy", "rounds", "planned", "seconds", "bytes", "energy", "busy", "merged")
FORECAST = dict(zip(NAMES, ("deadline 2 s", 1000, 30, 7200.0, 3e6, 7200.0, 0.25, 1.0), strict=True))
LOAD = {"level": "a", "device": "phone", "download": 0.0625, "compute": 12.345, "upload": 1234.5, "total": 1246.9}
LOAD |= {"energy": 7.0, "memory": 1.234, "trains": True, "idle": 0.5}


@pytest.fixture(scope="module")
def description():
    return describe(tiny.process(tiny.DENSE, FLEET, "rounds=30"))


def test_loads_are_those_of_the_mean_client(description):
    process, report = tiny.process(tiny.DENSE), description.about["fleet"]
    loads = {(load["level"], load["device"]): load for load in report["loads"]}
    assert list(loads) == [(level, device) for level in "abc" for device in ("fast", "slow")]
    # The clients have 7, 5, 9 and 4 examples, and 6 are two steps of 4.
    assert report["examples"] == 6
    cost = process.client_costs[1]
    fast, slow = loads["b", "fast"], loads["b", "slow"]
    assert (fast["download"], fast["compute"], fast["upload"], fast["energy"]) == (0, 1, 0, 4)
    assert (slow["compute"], slow["upload"]) == pytest.approx((6e-6 * sum(cost.train_flops), 1e-6 * cost.bytes_up))
    assert slow["energy"] == pytest.approx(2 * slow["upload"])
    assert slow["memory"] == pytest.approx(process.costs_of("b")["b"].memory.total / memory_bytes("0.001 MiB"))
    slowest = max(load["total"] for load in report["loads"])
    assert [load["idle"] for load in report["loads"]] == pytest.approx(
        [1 - load["total"] / slowest for load in report["loads"]]
    )
    assert fleet.to_text(report) in to_text(description, complete=True)
    screen = to_text(description)
    assert fleet.to_text(report, complete=False) in screen and "download" not in screen
    assert json.loads(json.dumps(to_json(description)))["fleet"]["loads"][0] == report["loads"][0]


def test_clients_that_never_train_are_not_waited_for():
    changes = ("levels.fit=device", "levels.assignment=fixed", "round.clients=1")
    slow = FLEET.replace("0.001 MiB", "0.0001 MiB").replace("gflops: 0.001", "gflops: 0.000001")
    report = describe(tiny.process(tiny.DENSE, slow, *changes)).about["fleet"]
    assert [load["trains"] for load in report["loads"] if load["device"] == "slow"] == [False] * 3
    assert [load["idle"] for load in report["loads"]] == [0, None] * 3


def test_a_trace_has_its_fast_median_and_slow_clients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("seconds_per_step\n4\n1\n3\n2\n")
    report = describe(tiny.process(tiny.DENSE, "fleet={trace: t.csv}")).about["fleet"]
    assert [(load["device"], load["compute"]) for load in report["loads"][:3]] == [
        ("fast", 2),
        ("median", 6),
        ("slow", 8),
    ]


def test_cells():
    loads = [LOAD, LOAD | {"memory": 12.3, "trains": False, "idle": None}, LOAD | {"memory": 0.0}]
    text = fleet.to_text({"examples": 6, "loads": loads, "forecast": FORECAST, "unplanned": None})
    rows = text.splitlines()
    assert " ".join(rows[1].split()) == "a phone 0.062 s 12.3 s 1,234 s 1,247 s 50 % 123 % OVER 7 J"
    assert max(map(len, rows)) <= 80
    assert "idle: share of a round that waits for the slowest, level a on phone" in text
    assert rows[8].split() == ["policy", "rounds", "time", "traffic", "energy", "busy", "merged"]
    assert " ".join(rows[9].split()) == "deadline 2 s 1,000 2:00:00 h 3 MB 2 Wh 25 % 100 %"
    assert "forecast of the run from 30 planned rounds" in text
    assert rows[2].split()[10:] == ["-", "12x", "unfit", "7", "J"]
    assert rows[3].split()[10:] == ["50", "%", "-", "7", "J"]


@pytest.mark.parametrize("policy", ["wait", "{name: deadline, seconds: 1.5}"])
def test_a_forecast_of_all_rounds_is_the_run(policy, eager):
    process = tiny.process(tiny.DENSE, FLEET, f"round.policy={policy}")
    rows, state = [], process.initialize()
    for _ in range(process.recipe.rounds):
        state, row = process.next(state)
        rows.append(row)
    forecast = describe(process).about["fleet"]["forecast"]
    assert forecast["planned"] == forecast["rounds"] == 3
    assert forecast["seconds"] == pytest.approx(sum(row["round_seconds"] for row in rows))
    assert forecast["energy"] == pytest.approx(sum(row["round_energy"] for row in rows))
    assert forecast["bytes"] == sum(row["bytes_down"] + row["bytes_up"] for row in rows)
    assert (forecast["merged"] == 1) == (sum(row["late"] == 0 for row in rows) == len(rows))


def test_an_asynchronous_policy_is_forecast_with_its_buffer():
    process = tiny.process(tiny.DENSE, FLEET, "rounds=30", "round.policy={name: buffered, size: 2}")
    forecast = describe(process).about["fleet"]["forecast"]
    assert (forecast["policy"], forecast["rounds"], forecast["busy"]) == ("buffered 2", 30, 1)


def test_forecast_of_a_selection_that_reads_results_is_that_of_the_uniform_one():
    report = describe(tiny.process(tiny.DENSE, FLEET, "round.selection=oort")).about["fleet"]
    assert report["unplanned"] == "oort"
    assert "clients are drawn uniformly, since oort chooses by results of the run" in fleet.to_text(report)
