"""Runs as separate processes and as forks: messages, exit codes, and the end of all processes."""

import os
import re
import sys
import time

import programs
import pytest

from hetero_tf.base import processes
from hetero_tf.cli import sweep_child
from hetero_tf.sweeps.pool import Launcher, Program

# Like `cli/sweep_child.py`, but the words of a run are lines of Python.
SERVER = """
import sys
from hetero_tf.base import processes
def work(words):
    processes.exit_with_parent(0)
    exec(words[0])
    return 0
if sys.argv[1] == "--fork":
    processes.serve_forks(int(sys.argv[2]), work)
else:
    sys.exit(work(sys.argv[1:]))
"""
FAILING = "import os; print('data: none\\nhetero_tf: all lost\\nround 3/9', flush=True); os._exit(3)"
KILLED = "import os; print('round 1/2', flush=True); os.kill(os.getpid(), 9)"
# Also ends the process that forks, but not one that trains alone.
KILLED_SERVER = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"


def launcher(tmp_path, monkeypatch, forks):
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))
    (tmp_path / "server.py").write_text(SERVER)
    return Launcher(Program((sys.executable, str(tmp_path / "server.py")), (), 1, forks))


@pytest.mark.parametrize("forks", [False, True])
def test_run_reports_its_last_message(tmp_path, monkeypatch, forks):
    with launcher(tmp_path, monkeypatch, forks) as runs:
        code, problem, seconds = runs.run([FAILING])
        assert (code, problem) == (3, "all lost") and seconds > 0
        for killing in (KILLED, KILLED_SERVER)[: 1 + forks]:
            assert runs.run([killing])[:2] == (-9, "was stopped by SIGKILL")
            assert runs.run(["print('hetero_tf: a late message', end='')"])[:2] == (0, "")


def test_stopped_server_ends_after_its_run(tmp_path, monkeypatch):
    """The run exits as after a signal, so that it can save its last round."""
    monkeypatch.setenv("PYTHONPATH", str(programs.ROOT))
    (tmp_path / "server.py").write_text(SERVER)
    results, descriptor = os.pipe()
    command = [sys.executable, str(tmp_path / "server.py"), "--fork", str(descriptor)]
    server = processes.start(command, descriptors=[descriptor])
    os.close(descriptor)
    started = tmp_path / "started"
    print(f'["import time; open({str(started)!r}, chr(120)); time.sleep(60)"]', file=server.stdin, flush=True)
    programs.wait_for(started.exists)
    processes.stop(server)
    assert os.read(results, 16) == b"143\n" and server.poll() == 0
    os.close(results)


@pytest.mark.long
def test_import_before_forks_starts_no_threads():
    """TensorFlow's context and its thread pools start in the forks.

    NumPy's BLAS and Arrow, which Keras imports with pandas, start their threads again in a fork.
    """
    code = """
import os, threading, numpy, pyarrow
before = len(os.listdir("/proc/self/task"))
from unittest import mock
from hetero_tf.base import processes
from hetero_tf.cli import sweep_child
mock.patch.object(processes, "serve_forks").start()
sweep_child.serve(0)
from tensorflow.python.eager import context
assert context.context()._context_handle is None
print(len(os.listdir("/proc/self/task")) - before, threading.active_count())
"""
    assert programs.python(code).stdout == "0 1\n"


@pytest.mark.long
def test_forked_runs_equal_a_separate_run_bit_for_bit(tmp_path):
    recipe = programs.recipe_file(tmp_path, programs.RECIPE.replace("a-b", "b"))
    with Launcher(Program((sys.executable, sweep_child.__file__), ("--threads=1",), 1, True)) as runs:
        for name in ("first", "second"):
            began = time.monotonic()
            assert runs.run([f"--recipe={recipe}", f"--run_dir={tmp_path / name}"])[:2] == (0, "")
        # The start of a fork is its own, and not that of the process that forks.
        (start,) = re.findall(r"ready in .*: start ([\d.]+) s, ", (tmp_path / "second" / "log.txt").read_text())
        assert float(start) <= time.monotonic() - began
    # Like the runs of the launcher, it computes with oneDNN.
    with_onednn = programs.environment(TF_ENABLE_ONEDNN_OPTS=None)
    words = ("--recipe", recipe, "--run_dir", tmp_path / "separate", "--threads", 1)
    separate = programs.command(*words, env=with_onednn)
    assert separate.returncode == 0, separate.stderr
    contents = [programs.contents(tmp_path / name) for name in ("separate", "first", "second")]
    assert contents[0] == contents[1] == contents[2] and contents[0]["metrics"]
