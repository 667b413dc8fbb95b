"""Runs that are killed at any moment and started again by the same command end with the bits of an unbroken run."""

import json
import os
import random
import signal
import time

import programs
import pytest

pytestmark = pytest.mark.long

ROUNDS = 12
# Rounds long enough to be hit, a few hundredths of a second.
EPOCHS = 25
# Measured and sealed at different rounds, so that one call trains several rounds.
CHUNKED = ("--set", "evaluate.every=3", "--set", "checkpoint.every=2")


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
    """What the uninterrupted runs leave, by their further flags."""
    folder = tmp_path_factory.mktemp("unbroken")
    runs = {more: start(folder / str(len(more)), *more) for more in ((), CHUNKED)}
    assert [run.wait() for run in runs.values()] == [0, 0]
    return {more: programs.contents(folder / str(len(more))) for more in runs}


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


def interrupt(run, folder, rng, number):
    """Lets a run do some rounds, then stops it: while it seals, or after a random time."""
    aim = rows(folder) + rng.randint(0, 2)
    run.until(lambda: rows(folder) >= aim)
    if rng.random() < 0.5:
        run.until(lambda: sealing(folder))
    else:
        time.sleep(rng.random() * (0.05 if rows(folder) else 2))
    return run.kill(number).wait()


@pytest.mark.parametrize(("more", "seed"), [((), 0), (CHUNKED, 1)], ids=["every round", "several rounds a call"])
def test_killed_again_and_again_ends_with_the_same_bits(start, unbroken, tmp_path, more, seed):
    rng, folder, codes = random.Random(seed), tmp_path / "run", []
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        codes.append(interrupt(start(folder, *more), folder, rng, number))
    last = start(folder, *more)
    assert last.wait() == 0, last.err
    # The faults fired: at most one of them may have come after the end. One that comes before the program handles
    # signals (a loaded machine starts slowly) ends it like any other.
    assert sum(code != 0 for code in codes) >= 5 and set(codes) <= {-9, -2, -15, 130, 143, 0}, codes
    assert programs.contents(folder) == unbroken[more]
    assert "resumed" in last.out and "skipped" not in last.out and "note:" not in last.out
    assert not sealing(folder)


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
    assert programs.contents(tmp_path / "run") == unbroken[()]


def test_files_that_may_not_grow_stop_the_run_and_lose_nothing(start, unbroken, tmp_path):
    """A full disk, as a limit on the size of files: sealing the first state fails, then a row of metrics."""
    folder = tmp_path / "run"
    largest = len(unbroken[()]["metrics"]) - 50
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
    assert programs.contents(folder) == unbroken[()]


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
