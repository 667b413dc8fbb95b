"""Runs that signals, a second start or a full disk interrupt; the campaign kills them at any moment."""

import json
import os
import signal
import time

import programs
import pytest

pytestmark = pytest.mark.long

ROUNDS = 12
# Rounds long enough to be hit, a few hundredths of a second.
EPOCHS = 25


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts the run of 12 rounds in a folder."""
    recipe = programs.recipe_file(tmp_path_factory.mktemp("recipe"))

    def begin(folder, *more, **options):
        settings = (f"--set=rounds={ROUNDS}", f"--set=client.epochs={EPOCHS}")
        return programs.shared().start("--recipe", recipe, *settings, "--run_dir", folder, *more, **options)

    return begin


@pytest.fixture(scope="module")
def unbroken(start, tmp_path_factory):
    """What an uninterrupted run leaves."""
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert start(folder).wait() == 0
    return programs.contents(folder)


def rows(folder):
    try:
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def sealing(folder):
    """Whether a state is being written at this moment."""
    for name in ("checkpoints", "best"):
        try:
            if any(found.startswith(".tmp-") for found in os.listdir(folder / name)):
                return True
        except FileNotFoundError:
            pass
    return False


def test_signals_and_a_second_start_while_a_long_call_runs(start, tmp_path):
    """One round of a minute: the answer must not wait for its end."""
    long = ("--set", "client.epochs=40000")
    runs = {name: start(tmp_path / name, *long) for name in ("SIGINT", "SIGTERM", "SIGHUP")}
    for run in runs.values():
        assert run.until(lambda run=run: "clients: 6" in run.out), run.err
    second = start(tmp_path / "SIGINT", *long)
    assert second.wait() == 5
    assert second.err == (
        f"hetero_tf: {tmp_path / 'SIGINT'}: process {runs['SIGINT'].pid} works on this run folder; "
        "wait for it, stop it, or choose another folder\n"
    )
    time.sleep(2)  # planning and tracing are over: the compiled call runs
    for name, run in runs.items():
        number = getattr(signal, name)
        run.kill(number)
        assert run.wait() == 128 + number
        assert run.err == (f"\nstopped by {name}; finished rounds are kept and the same command continues from there\n")
        assert "round 1/" not in run.out


def test_a_storm_of_signals_gives_one_sentence(start, unbroken, tmp_path):
    run = start(tmp_path / "run")
    assert run.until(lambda: "round 3/" in run.out)
    for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] * 7:
        if run.alive():
            run.kill(number)
    assert run.wait() in (129, 130, 143)
    assert run.err.count("stopped by SIG") == 1 and "Traceback" not in run.err
    assert start(tmp_path / "run").wait() == 0
    assert programs.contents(tmp_path / "run") == unbroken


def test_files_that_may_not_grow_stop_the_run_and_lose_nothing(start, unbroken, tmp_path):
    """A full disk, as a limit on the size of files: sealing the first state fails, then a row of metrics."""
    folder = tmp_path / "run"
    largest = len(unbroken["metrics"]) - 50
    limits = {
        2500: "arrays.npz: could not write: File too large; raise the file size limit",
        largest: "metrics.jsonl: could not append to: File too large; raise the file size limit",
    }
    for limit, sentence in limits.items():
        run = start(folder, largest=limit)
        assert run.wait() == 3
        assert run.err.startswith("hetero_tf: ") and run.err.count("\n") == 1 and sentence in run.err, run.err
        assert not sealing(folder)
    assert rows(folder) == ROUNDS - 1
    last = start(folder)
    assert last.wait() == 0, last.err
    assert programs.contents(folder) == unbroken


def test_other_conditions_are_refused_and_may_be_allowed(start, unbroken, tmp_path):
    folder = tmp_path / "run"
    run = start(folder, "--threads", "2")
    assert run.until(lambda: "round 3/" in run.out)
    run.kill().wait()
    done = (folder / "metrics.jsonl").read_bytes().splitlines()[:3]
    other = start(folder, "--threads", "1")
    assert other.wait() == 2
    assert other.err == (
        f"hetero_tf: {folder}: was begun under other conditions (threads.inter_op was 2, is 1), so "
        "its numbers would not be those of an uninterrupted run; continue all the same with "
        "--allow_other_machine\n"
    )
    allowed = start(folder, "--threads", "1", "--allow_other_machine")
    assert allowed.wait() == 0
    assert "note: threads.inter_op was 2, is 1\n" in allowed.out
    found = (folder / "metrics.jsonl").read_bytes().splitlines()
    assert found[:3] == done and [json.loads(row)["round"] for row in found] == list(range(1, ROUNDS + 1))
    assert json.loads((folder / "environment.json").read_text())["threads"] == {"inter_op": 1, "intra_op": 1}
