"""Device time of finished runs: equal to that of a run on the fleet, and of the shipped runs as published."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import runs
from refusals import refusal

from hetero_tf.reports.fleet_times import time_runs
from hetero_tf.runs.history import read
from hetero_tf.runs.run_folder import RunFolder

FLEET = """
spread: 0.9
jitter: 0.2
shared_up_mbit: 20
devices:
  fast: {share: 0.3, gflops: 20, seconds_per_step: 0.002, down_mbit: 50, up_mbit: 10, train_watts: 4, radio_watts: 1}
  slow: {share: 0.7, gflops: 0.1, seconds_per_step: 0.02, down_mbit: 5, up_mbit: 1, train_watts: 2, radio_watts: 1}
"""
RECIPE = "base: tiny/digits\nrounds: 3\nevaluate.every: 3"
TIMES = ("round_seconds", "device_seconds", "client_seconds", "round_energy", "energy")
train_stub = runs.train_stub
ARCHIVE = Path(__file__).parents[2] / "benchmarks" / "heterofl_narrow.tar.gz"


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "fleet.yaml").write_text(FLEET)
    return str(tmp_path / "fleet.yaml")


@pytest.fixture
def folder(train_stub, tmp_path, fleet):
    """A run that was trained on the fleet."""
    train_stub(tmp_path / "run", RECIPE, f"fleet={fleet}")
    return RunFolder(tmp_path / "run")


def remove_times(folder):
    rows = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    rows = [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    folder.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    folder.timeline.unlink(missing_ok=True)


def columns(run):
    return {name: [row[name] for row in run.rows] for name in TIMES}


def test_times_equal_those_of_a_run_on_the_fleet(folder, fleet):
    trained = read(folder.path)
    remove_times(folder)
    ((timed,), messages) = time_runs([read(folder.path)], fleet)
    assert messages == [] and trained.rows[0]["device_seconds"] > 0
    assert timed.rows[-1]["device_seconds"] == trained.rows[-1]["device_seconds"]
    assert columns(timed) == {name: pytest.approx(values, rel=1e-12) for name, values in columns(trained).items()}
    assert len(trained.timeline) == 3 and timed.timeline[2]["ended"] == pytest.approx(trained.timeline[2]["ended"])
    assert {client["client"] for client in timed.timeline[0]["clients"]} == {
        client["client"] for client in trained.timeline[0]["clients"]
    }
    # The shipped runs have no split.
    folder.partition.unlink()
    ((estimated,), _) = time_runs([read(folder.path)], fleet)
    assert columns(estimated) == {name: pytest.approx(values, rel=0.1) for name, values in columns(trained).items()}


def test_runs_whose_times_are_unknown_are_left_out_with_the_reason(write_run, fleet):
    def reason(name, *overrides, **options):
        options = {"sizes": {"a": 4000, "b": 3000, "c": 2000}} | options
        run = read(write_run(name, [10.0, 20.0], *overrides, **options))
        return refusal(time_runs, [run], fleet).partition("cannot time it: ")[2]

    policy = "its rounds do not wait for all clients (round.policy: over_selection)"
    for change, sentence in (
        ("round.policy={name: over_selection}", policy),
        ("round.selection=oort", "its clients were not chosen uniformly (round.selection: oort)"),
        ("levels.fit=device", "its levels depend on its own fleet (levels.fit: device)"),
    ):
        assert reason(change, change, "levels.assignment=fixed", f"fleet={fleet}") == sentence
    assert reason("dropped", more={"dropped": 1}) == "clients of it dropped out or were late"
    assert reason("costs", sizes=None) == "it has no costs.json, which resuming the training adds"
    assert reason("split", traffic=False) == "it has no partition.npz"
    assert reason("cohort", more={"levels": {"a": 3, "b": 3, "c": 3}}) == (
        "its clients of round 1 were chosen in another way"
    )


def test_shipped_runs_reach_99_percent_in_the_published_time(tmp_path, command):
    with tarfile.open(ARCHIVE) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith("mnist-levels.mix=d-e-seed")]
        archive.extractall(tmp_path / "runs", members, filter="data")
    (tmp_path / "phones.yaml").write_text("""
assign: levels
devices:
  d: {gflops: 20, down_mbit: 50, up_mbit: 10}
  e: {gflops: 2, down_mbit: 50, up_mbit: 10, dropout: 0.1}
""")
    shutil.copytree(next((tmp_path / "runs").iterdir()), tmp_path / "runs" / "without_costs")
    (tmp_path / "runs" / "without_costs" / "costs.json").unlink()
    options = ["--fleet", str(tmp_path / "phones.yaml"), "--reach", "98.5,99", "--as", "markdown"]
    code, output, messages = command("compare", tmp_path / "runs", *options)
    assert code == 0
    head, _, row = ([cell.strip() for cell in line.split("|")] for line in output.splitlines()[:3])
    values = dict(zip(head, row))
    assert values["global_accuracy to 98.5: device s"] == "44.3 ± 9.4"
    assert values["global_accuracy to 99: device min"] == "3.24 ± 0.31"
    assert messages.splitlines() == [
        f"left out: {tmp_path}/runs/without_costs, --fleet cannot time it: it has no costs.json, which resuming the training adds",
        "note: all clients of these runs returned, so dropout, hours and charging of --fleet do not count",
    ]
