"""Runs as separate processes and as forks: output, exit codes, and the end of all processes."""

import os
import signal
import sys
from pathlib import Path

import programs
import pytest

from hetero_tf.base import children
from hetero_tf.cli import sweep_child
from hetero_tf.sweeps.launcher import Launcher, Program

# Like `cli/sweep_child.py`, but the words of a run are lines of Python.
SERVER = """
import sys
from hetero_tf.base import children
def work(words):
    children.exit_with_parent(0)
    exec(words[0])
    return 0
if sys.argv[1] == "--fork":
    children.serve_forks(int(sys.argv[2]), work)
else:
    sys.exit(work(sys.argv[1:]))
"""
ROUNDS = (
    "data: none\nround 1/9  12 of 40 s  2/10 clients\nround 2/9  global_accuracy 9  1:05 min left  loss 2  a3\n"
    "round 9/9  0 s left  loss 1  3 clients diverged\nnote: nothing\nhetero_tf: all lost\nround 3/9\n"
)
FAILING = f"import os; print({ROUNDS!r}, end='', flush=True); os._exit(3)"
KILLED = "import os; print('round 1/2', flush=True); os.kill(os.getpid(), 9)"


def launcher(tmp_path, monkeypatch, forks):
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))
    (tmp_path / "server.py").write_text(SERVER)
    return Launcher(Program((sys.executable, str(tmp_path / "server.py")), (), 1, forks))


@pytest.mark.parametrize("forks", [False, True])
def test_run_reports_rounds_and_the_last_message(tmp_path, monkeypatch, forks):
    seen = []
    with launcher(tmp_path, monkeypatch, forks) as runs:
        code, problem, seconds = runs.run([FAILING], lambda *rounds: seen.append(rounds))
        assert (code, problem, seen) == (3, "all lost", [(2, 9), (9, 9)]) and seconds > 0
        assert runs.run([KILLED], print)[:2] == (-9, "was stopped by SIGKILL")
        assert runs.run(["print('hetero_tf: a late message', end='')"], print)[:2] == (0, "")


def test_killed_run_ends_despite_an_inherited_pipe(tmp_path, monkeypatch):
    code = """
import os, subprocess
child = subprocess.Popen(["sleep", "20"])
print(f"round {child.pid}/9  1 s left  loss 2", flush=True)
os.kill(os.getpid(), 9)
"""
    seen = []
    with launcher(tmp_path, monkeypatch, False) as runs:
        ended, _, _ = runs.run([code], lambda round, rounds: seen.append(round))
    # It is no zombie: the end of the pipe was not waited for. Its command line may not be there yet.
    state = Path(f"/proc/{seen[0]}/stat").read_text().rpartition(")")[2].split()[0]
    os.kill(seen[0], signal.SIGKILL)
    assert state != "Z" and ended == -9


def test_killed_server_is_replaced(tmp_path, monkeypatch):
    kill = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"
    with launcher(tmp_path, monkeypatch, True) as runs:
        assert runs.run([kill], print)[:2] == (-9, "was stopped by SIGKILL")
        assert runs.run(["pass"], print)[:2] == (0, "")


def test_stopped_server_ends_after_its_run(tmp_path, monkeypatch):
    """The run exits as after a signal, so that it can save its last round."""
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))
    (tmp_path / "server.py").write_text(SERVER)
    results, descriptor = os.pipe()
    server = children.start(
        [sys.executable, str(tmp_path / "server.py"), "--fork", str(descriptor)], False, [descriptor]
    )
    os.close(descriptor)
    print('["import time; print(1, flush=True); time.sleep(60)"]', file=server.stdin, flush=True)
    assert server.stdout.readline() == "1\n"
    children.stop(server)
    assert os.read(results, 16) == b"143\n" and server.poll() == 0
    os.close(results)
    server.stdout.close()


@pytest.mark.long
def test_import_before_forks_starts_no_threads():
    """TensorFlow's context and its thread pools start in the forks.

    NumPy's BLAS and Arrow, which Keras imports with pandas, start their threads again in a fork.
    """
    code = """
import os, threading, numpy, pyarrow
before = len(os.listdir("/proc/self/task"))
from unittest import mock
from hetero_tf.base import children
from hetero_tf.cli import sweep_child
mock.patch.object(children, "serve_forks").start()
sweep_child.serve(0)
from tensorflow.python.eager import context
assert context.context()._context_handle is None
print(len(os.listdir("/proc/self/task")) - before, threading.active_count())
"""
    assert programs.python(code).stdout == "0 1\n"


@pytest.mark.long
def test_forked_runs_equal_a_separate_run_bit_for_bit(tmp_path):
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("a-b", "b"))
    program = Program((sys.executable, sweep_child.__file__), ("--threads=1",), 1, True)
    with Launcher(program) as runs:
        for name in ("first", "second"):
            assert runs.run([f"--recipe={recipe}", f"--run_dir={tmp_path / name}"], lambda *rounds: None)[:2] == (0, "")
    # Like the runs of the launcher, it computes with oneDNN.
    with_onednn = programs.environment(TF_ENABLE_ONEDNN_OPTS=None)
    words = ("--recipe", recipe, "--run_dir", tmp_path / "separate", "--threads", 1)
    separate = programs.command(*words, env=with_onednn)
    assert separate.returncode == 0, separate.stderr
    contents = [programs.contents(tmp_path / name) for name in ("separate", "first", "second")]
    assert contents[0] == contents[1] == contents[2] and contents[0]["metrics"]
