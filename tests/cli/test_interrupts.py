"""Signals: one sentence, the right exit code, at once, whatever the worker thread does."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import programs
import pytest
from refusals import raising

from hetero_tf.base import processes
from hetero_tf.base.errors import DiskProblem
from hetero_tf.cli import main
from hetero_tf.runs import checkpoints

# The worker sits in one call into C that no signal interrupts, like a compiled round does.
BUSY = """
import hashlib, sys
from hetero_tf.base import processes
processes.install_handlers("all is well")
def work():
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)
    print("ended", flush=True)
processes.run_in_thread(work)
"""


def begin(script, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-c", script], text=True, env=programs.environment(), **options)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_long_calls_do_not_delay_signals(name):
    with begin(BUSY) as process:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(getattr(signal, name))
        assert process.wait(timeout=600) == 128 + getattr(signal, name)
        assert (process.stdout.read(), process.stderr.read()) == ("", f"\nstopped by {name}; all is well\n")


def test_later_signals_change_nothing():
    saving = "with processes.before_exit(lambda: print('saving', flush=True) or time.sleep(1)):\n    processes.run"
    with begin("import time\n" + BUSY.replace("processes.run", saving)) as process:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "saving\n"
        for number in [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] * 7:
            process.send_signal(number)
        assert process.wait(timeout=600) == 143
        assert (process.stdout.read(), process.stderr.read()) == ("", "\nstopped by SIGTERM; all is well\n")


def test_signals_ignored_at_start_stay_ignored():
    """nohup: the run continues after the terminal closes."""

    def hang_up():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with begin(BUSY, preexec_fn=hang_up) as process:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 143


def test_unread_pipe_does_not_block_the_exit():
    """Standard output and error are full and the worker is stuck in writing to them."""
    script = BUSY.replace(
        'hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)', 'sys.stdout.write("x" * 10**7); sys.stdout.flush()'
    )
    with begin(script, stderr=subprocess.STDOUT) as process:
        assert b"".join(os.read(process.stdout.fileno(), 1) for _ in range(5)) == b"busy\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 130


FOLDER = """
import pathlib, sys, time
from hetero_tf.base import processes
def work():
    with processes.temporary_folder() as outer, processes.before_exit(lambda: 1 / 0):
        pathlib.Path(outer, "x").write_text("x")
        print(outer, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("end", ["a signal", "the end of its starter", "an error"])
def test_temporary_folders_are_always_removed(tmp_path, end):
    script = FOLDER + {
        "a signal": 'processes.install_handlers("all is well", "one failed")\nprocesses.run_in_thread(work)\n',
        "the end of its starter": "processes.exit_with_parent(0)\nwork()\n",
        "an error": "time.sleep = {}.pop\nwork()\n",
    }.get(end)
    with begin(script, stdin=subprocess.PIPE) as process:
        folder = process.stdout.readline().strip()
        assert folder.startswith(tempfile.gettempdir()) and (end == "an error" or os.path.exists(f"{folder}"))
        if end == "a signal":
            process.send_signal(signal.SIGUSR1)
        process.stdin.close()
        assert process.wait(timeout=600) == {"a signal": 138, "an error": 1}.get(end, 143)
        # The action that divides by zero stops neither the other one nor the exit.
        assert end != "a signal" or process.stderr.read() == "\nstopped by SIGUSR1; one failed\n"
    assert not os.path.exists(folder)


def test_a_missing_temporary_folder_names_tmpdir(monkeypatch):
    monkeypatch.setattr(
        tempfile,
        "_get_default_tempdir",
        raising(FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/']")),
    )
    monkeypatch.setattr(tempfile, "tempdir", None)
    with pytest.raises(DiskProblem) as refused, processes.temporary_folder():
        pass
    assert str(refused.value) == (
        "could not create a temporary folder: No usable temporary directory found in ['/tmp', '/']; set TMPDIR to a writable folder"
    )
    # Libraries ask for such a folder too.
    code, advice = main._diagnose(FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/']"))
    assert (code, advice) == (3, "set TMPDIR to a writable folder")


@pytest.mark.parametrize("number", [signal.SIGUSR1, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_signal_saves_the_last_finished_round(tmp_path, number):
    """With a checkpoint every 1000 rounds; the resumed run equals an uninterrupted one."""
    recipe = programs.recipe_file(tmp_path)
    words = [f"--recipe={recipe}", "--set=checkpoint.every=1000", "--set=evaluate.every=2"]
    folder = tmp_path / "run"
    # The long case trains; the other one is stopped in a round of ten minutes.
    stub = number == signal.SIGUSR1
    run = programs.shared().start(*words, "--set=rounds=5000", f"--run_dir={folder}", stub=stub and 600)
    assert run.until(lambda: (folder / "metrics.jsonl").exists()), run.err
    assert run.kill(number).wait() == 128 + number
    assert run.err == (
        f"\nstopped by {number.name}; finished rounds are saved; the same command continues from there\n"
    )
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    saved_round, *_ = checkpoints.numbers(folder / "checkpoints")
    assert saved_round == rows[-1]["round"] >= 2 and saved_round % 1000
    rounds = f"--set=rounds={saved_round + 2}"
    resumed = programs.shared().run(*words, rounds, f"--run_dir={folder}", stub=stub)
    assert resumed.code == 0 and f"resumed {folder} after round {saved_round}\n" in resumed.out, resumed.err
    whole = programs.shared().run(*words, rounds, f"--run_dir={tmp_path / 'whole'}", stub=stub)
    assert whole.code == 0, whole.err
    resumed, whole = (programs.contents(each) for each in (folder, tmp_path / "whole"))
    names = [name for name in whole if name.startswith((f"round-{saved_round + 2:06d}", "metrics"))]
    assert len(names) > 2 and all(resumed[name] == whole[name] for name in names)


def test_worker_thread_returns_result_or_exception():
    assert processes.run_in_thread(lambda: 3) == 3
    with pytest.raises(KeyError, match="lost"):
        processes.run_in_thread(lambda: {}["lost"])
