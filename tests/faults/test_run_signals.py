"""Runs interrupted by signals, a second start or a full disk. Property tests interrupt them at random times."""

import json
import signal
import time

import programs
import pytest

pytestmark = pytest.mark.long

ROUNDS = 12
# Rounds of a few hundredths of a second, long enough for a signal to arrive.
EPOCHS = 25


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Function that starts the run of 12 rounds in a folder."""
    recipe = programs.recipe_file(tmp_path_factory.mktemp("recipe"))

    def begin(folder, *more, **options):
        settings = (f"--set=rounds={ROUNDS}", f"--set=client.epochs={EPOCHS}")
        return programs.shared().start("--recipe", recipe, *settings, "--run_dir", folder, *more, **options)

    return begin


@pytest.fixture(scope="module")
def unbroken(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert start(folder).wait() == 0
    return programs.contents(folder)


def test_signals_and_second_start_during_a_long_call(start, tmp_path):
    """One round of a minute: the program must exit before it ends."""
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
        assert run.err == (f"\nstopped by {name}; finished rounds are saved; the same command continues from there\n")
        assert "round  1/" not in run.out


def test_many_signals_print_one_sentence(start, unbroken, tmp_path):
    run = start(tmp_path / "run")
    assert run.until(lambda: "round  3/" in run.out)
    for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] * 7:
        if run.alive():
            run.kill(number)
    assert run.wait() in (129, 130, 143)
    assert run.err.count("stopped by SIG") == 1 and "Traceback" not in run.err
    assert start(tmp_path / "run").wait() == 0
    assert programs.contents(tmp_path / "run") == unbroken


def test_file_size_limit_stops_the_run_without_loss(start, tmp_path):
    """A file size limit acts as a full disk: the first checkpoint fails, then a row of metrics."""
    # The rows are longer than a checkpoint.
    folder, rounds = tmp_path / "run", "--set=rounds=60"
    assert start(tmp_path / "unbroken", rounds, stub=True).wait() == 0
    unbroken = programs.contents(tmp_path / "unbroken")
    largest = len(unbroken["metrics"]) - 50
    limits = {
        2500: "round-000001.npz: could not write: File too large; raise the file size limit",
        largest: "metrics.jsonl: could not append to: File too large; raise the file size limit",
    }
    for limit, sentence in limits.items():
        run = start(folder, rounds, largest=limit, stub=True)
        assert run.wait() == 3
        assert run.err.startswith("hetero_tf: ") and run.err.count("\n") == 1 and sentence in run.err, run.err
        assert not list(folder.glob("*/.tmp-*"))
    assert (folder / "metrics.jsonl").read_bytes().count(b"\n") == 59
    last = start(folder, rounds, stub=True)
    assert last.wait() == 0, last.err
    assert programs.contents(folder) == unbroken


def test_other_environment_is_rejected_unless_allowed(start, unbroken, tmp_path):
    folder = tmp_path / "run"
    run = start(folder, "--threads", "2")
    assert run.until(lambda: "round  3/" in run.out)
    run.kill().wait()
    done = (folder / "metrics.jsonl").read_bytes().splitlines()[:3]
    other = start(folder, "--threads", "1")
    assert other.wait() == 2
    assert other.err == (
        f"hetero_tf: {folder}: was started in another environment (threads.inter_op was 2, is 1), so its results would "
        "differ from those of an uninterrupted run; use --allow_other_machine to continue anyway\n"
    )
    allowed = start(folder, "--threads", "1", "--allow_other_machine")
    assert allowed.wait() == 0
    assert "note: threads.inter_op was 2, is 1\n" in allowed.out
    rows_after = (folder / "metrics.jsonl").read_bytes().splitlines()
    assert rows_after[:3] == done and [json.loads(row)["round"] for row in rows_after] == list(range(1, ROUNDS + 1))
    assert json.loads((folder / "environment.json").read_text())["threads"] == {"inter_op": 1, "intra_op": 1}
