"""Whether `best/` belongs to its run: not of other data, not an older one, not one of another seed or machine."""

import shutil

import programs
import pytest
import runs
from refusals import refusal

from hetero_tf.run import resume
from hetero_tf.runs import facts
from hetero_tf.runs.run_folder import RunFolder

RECIPE, MORE = programs.RECIPE, ("evaluate.best=local_loss",)
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
