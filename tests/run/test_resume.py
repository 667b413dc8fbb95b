"""Whether `best/` belongs to its run: not of other data, not an older one, not one of another seed or machine."""

import shutil

import programs
import pytest
import runs
from refusals import refusal

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.run import resume
from hetero_tf.run.experiment import Settings, build_process
from hetero_tf.runs import facts
from hetero_tf.runs.run_folder import RunFolder

RECIPE = programs.RECIPE.replace("sbn", "none")
MORE = ("evaluate.best=local_loss",)
train_stub = runs.train_stub


def check(folder):
    """Do what evaluate and export do before they use the best state."""
    run = RunFolder(folder)
    resume.require_best(run, facts.best(run), facts.newest(run))


def put(source, target):
    """Puts the best state of one run into the folder of another."""
    shutil.rmtree(target / "best")
    shutil.copytree(source / "best", target / "best")


@pytest.fixture
def run(train_stub, tmp_path):
    """A finished run of two rounds, of which the second is the best one."""
    train_stub(tmp_path / "run", RECIPE, *MORE, "rounds=2")
    assert facts.newest(RunFolder(tmp_path / "run"))["best"]["round"] == 2
    return tmp_path / "run"


def refusal_message(run, reason):
    return (
        f"{run / 'best'}: does not belong to this run: {reason}; put back the state that the run saved, or choose "
        "--state last"
    )


def test_an_older_best_state_of_the_same_run_is_refused(train_stub, run):
    train_stub(run.parent / "older", RECIPE, *MORE, "rounds=1")
    check(run)
    put(run.parent / "older", run)
    assert refusal(check, run) == refusal_message(run, "it is of round 1, and the best round of the run is 2")


def test_a_best_state_of_another_run_is_refused(run):
    """Each differs in one fact only; a run of other data or another seed differs in several."""
    good = facts.best(RunFolder(run))
    settings = good["environment"]["settings"]
    other = {name: {**good["environment"], "settings": {**settings, name: "0"}} for name in ("data", "partition")}
    cases = {
        "it comes from another recipe (seed: 3 -> 4)": {"recipe": good["recipe"].replace("seed: 3", "seed: 4")},
        "it comes from other data": {"environment": other["data"]},
        "it comes from another partition of the data": {"environment": other["partition"]},
        "it is not the state that the run saved after round 2": {"best": {**good["best"], "local_loss": 0.5}},
    }
    same = {name: good[name] for name in ("recipe", "environment", "best")}
    for reason, changes in cases.items():
        runs.resave(run / "best", **{**same, **changes})
        assert refusal(check, run) == refusal_message(run, reason)
    # The same metrics, but another machine: the checkpoint names the seal of its best state.
    runs.resave(run / "best", **{**same, "environment": {**good["environment"], "cores": 1000}})
    assert refusal(check, run) == refusal_message(run, "it is not the state that the run saved after round 2")
    runs.resave(run / "best", **same)
    check(run)


def test_best_state_after_the_newest_checkpoint_is_confirmed_by_the_metrics(train_stub, tmp_path):
    """Killed between two checkpoints: the state is good, also before the first one and after the metrics were cut."""
    more = (*MORE, "rounds=5", "checkpoint.every=2")
    for stop in (1, 3):
        with pytest.raises(runs.Stopped):
            train_stub(tmp_path, RECIPE, *more, console=runs.StoppingConsole(stop))
        run = RunFolder(tmp_path)
        assert facts.best(run)["round"] == stop
        check(tmp_path)
        rows = run.metrics.read_bytes()
        run.metrics.write_bytes(rows.replace(b'"round":%d' % stop, b'"round":7'))
        reason = f"neither a checkpoint nor metrics.jsonl contains its round {stop}"
        assert refusal(check, tmp_path) == refusal_message(tmp_path, reason)
        run.metrics.write_bytes(rows)
    run.metrics.write_bytes(run.metrics.read_bytes()[: facts.newest(run)["metrics"]["bytes"]])
    check(tmp_path)
    _, output = train_stub(tmp_path, RECIPE, *more)
    assert output.count("note:") == 1 and "note: local_*" in output
    check(tmp_path)


def test_training_continues_without_a_best_state_of_another_run(train_stub, run):
    train_stub(run.parent / "other", RECIPE, *MORE, "rounds=1")
    put(run.parent / "other", run)
    summary, output = train_stub(run, RECIPE, *MORE, "rounds=3")
    assert f"note: the best state so far, of round 2, is lost ({run / 'best'}: it is of round 1, and" in output
    assert summary["best"]["round"] == 3
    check(run)


TRACE = "seconds_per_step,dropout\n" + "".join(f"{client / 10 + 0.1},0.4\n" for client in range(10))


def test_a_run_keeps_the_trace_of_its_fleet(train_stub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "devices.csv"
    trace.write_text(TRACE)
    started = ("fleet={trace: devices.csv}", "round.policy={name: over_selection, factor: 1.5}")
    train_stub(tmp_path / "whole", RECIPE, *started, "rounds=4")
    train_stub(tmp_path / "run", RECIPE, *started, "rounds=2")
    trace.write_text(TRACE.replace("0.4", "0.0"))
    with pytest.raises(InputError, match=r"devices.csv: is not the trace with which .*run started; put the original"):
        train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")
    trace.unlink()
    train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")
    assert runs.rows(tmp_path / "run") == runs.rows(tmp_path / "whole")
    run = RunFolder(tmp_path / "run")
    assert run.trace.read_text() == TRACE
    process = build_process(runs.recipe.loads(run.read_recipe()), Settings(run.path, None, 1, False, ""), run)
    assert process.clock is not None
    run.trace.write_text("seconds_per_step\n" + "1\n" * 10)
    with pytest.raises(InputError, match=r"fleet_trace.csv: is not the trace with which"):
        train_stub(tmp_path / "run", RECIPE, *started, "rounds=4")


def test_a_changed_plugin_file_is_a_difference(train_stub, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_registered", {kind: {} for kind in registry.KINDS})
    source = tmp_path / "halved_prefix.py"
    keep = "def keep(size, count, round, client, seed):\n    return tf.range(count)\n"
    source.write_text(f"import tensorflow as tf\n\n\n{keep}")
    registry.register_plugin("halved_prefix")
    train_stub(tmp_path / "run", RECIPE, "round.submodel=halved_prefix", "rounds=1")
    source.write_text(source.read_text().replace("tf.range(count)", "size - 1 - tf.range(count)"))
    with pytest.raises(InputError, match=r"settings.plugin halved_prefix was '\w{16}', is '\w{16}'"):
        train_stub(tmp_path / "run", RECIPE, "round.submodel=halved_prefix", "rounds=2")
