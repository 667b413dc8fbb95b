"""Starts the program many times without paying for the import of TensorFlow each time.

A helper process imports it and the program once and forks for every start, before TensorFlow has run anything; the fork
then does what `python -m hetero_tf` does. Tests that are about the start itself use `command` instead.
"""

import atexit
import functools
import gc
import importlib.util
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# Small enough to be traced in a second, with everything that is sealed: two levels, weights, statistics.
RECIPE = """
name: small
seed: 3
data: {name: synthetic, examples: 120, test_examples: 40, size: 6}
input: {name: images, mean: [0.5], std: [0.25]}
partition: {name: iid, clients: 6}
model:
  layers:
    - [PaddedConv2D: {filters: !w 6}, Scaler, Norm: {kind: sbn}, ReLU]
    - GlobalAveragePooling2D
    - Dense: {units: !classes}
levels: {widths: {a: 1.0, b: 0.5}, mix: a-b}
round: {clients: 2}
client: {epochs: 1, batch_size: 10}
optimizer: {learning_rate: 0.05}
rounds: 4
evaluate: {every: 1, batch_size: 40}
"""
# A command line of the program whose clients do not train, see `stub_rounds`; its words follow.
STUB = (
    sys.executable,
    "-c",
    f"import runpy, sys; sys.path.append({str(Path(__file__).parent)!r}); from hetero_tf.base import hardware; hardware"
    ".import_quietly(); import stub_rounds; stub_rounds.install(); runpy.run_module('hetero_tf', None, '__main__')",
)


def environment(**extra):
    """The variables a program is started with; extra None removes one.

    oneDNN is off: TensorFlow's pass that rewrites graphs for it takes a sixth of a short run. Long tests in the process
    of pytest train with it.
    """
    merged = {"TF_ENABLE_ONEDNN_OPTS": "0", **os.environ, "PYTHONPATH": str(ROOT), **extra}
    return {name: value for name, value in merged.items() if value is not None}


def command(*arguments, **options):
    """Runs `python -m hetero_tf` to its end."""
    options = {"capture_output": True, "text": True, "timeout": 600, "env": environment(), **options}
    return subprocess.run([sys.executable, "-m", "hetero_tf", *map(str, arguments)], **options)


def python(code, *arguments, **options):
    """Runs lines of Python to their end in a separate process."""
    options = {"capture_output": True, "text": True, "timeout": 600, "env": environment(), **options}
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], **options)


def install(folder, source=ROOT):
    """Install the package of a folder without its dependencies, and return the folder with it."""
    folder.mkdir()
    if source == ROOT:
        # A copy, since the build leaves folders where it works.
        source = folder / "source"
        for name in ("hetero_tf", "recipes"):
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("setup.py", "README.md"):
            shutil.copy(ROOT / name, source)
    options = ("-q", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--target")
    command = [sys.executable, "-m", "pip", "install", *options, folder / "site", source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def script(path):
    """The module in a file of the checkout that belongs to no package, such as benchmarks/study.py."""
    # Python adds the folder of a script to its path only when it starts the script.
    if str((ROOT / path).parent) not in sys.path:
        sys.path.append(str((ROOT / path).parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait_for(condition, seconds=60):
    """Waits until `condition()` holds; fails after the time limit."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def recipe_file(folder, text=RECIPE, name="small.yaml"):
    """Writes a recipe and returns its path."""
    path = Path(folder) / name
    path.write_text(text)
    return path


def contents(folder):
    """All that must be equal after an interruption: the arrays of checkpoints, bit by bit, and metrics."""
    folder, arrays = Path(folder), {}
    for path in sorted(folder.glob("checkpoints/round-*.npz")):
        with np.load(path) as archive:
            arrays |= {f"{path.name}/{name}": archive[name].tobytes() for name in archive.files if name != "info"}
    metrics = folder / "metrics.jsonl"
    return {**arrays, "metrics": metrics.read_bytes() if metrics.exists() else b""}


class Run:
    """One start of the program: its process id and what it has printed so far."""

    def __init__(self, fork, pid, out, err):
        self._fork, self.pid, self._out, self._err = fork, pid, out, err
        self.code = None

    @property
    def out(self):
        return self._out.read_text()

    @property
    def err(self):
        return self._err.read_text()

    def alive(self):
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"

    def until(self, condition, seconds=600):
        """Waits for `condition()`, or for the end of the program; says whether the condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            if not self.alive():
                return condition()
            time.sleep(0.001)
        raise AssertionError(f"nothing after {seconds} s: {self.out}{self.err}")

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)
        return self

    def wait(self):
        """The exit code; negative for the number of a signal."""
        if self.code is None:
            self.code = self._fork.ask({"wait": self.pid})
        return self.code


class Programs:
    """The helper process."""

    def __init__(self, folder):
        self.folder, self._count = Path(folder), 0
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([sys.executable, __file__], **pipes, text=True, env=environment())

    def ask(self, request):
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def start(self, *arguments, cwd=None, faults=None, user=None, script=None, stub=False, out=None):
        """Starts the program.

        Args:
            arguments: Of the command line.
            cwd: Its working folder.
            faults: What `failing_files.Faults` takes, for operations on files that fail.
            user: Number of the user who starts it, where the tests run as root.
            script: File of the checkout that runs instead of the program.
            stub: True if no client trains, see `stub_rounds`; or the seconds of each such round after the second.
            out: A file, or a named pipe, for its standard output.
        """
        self._count += 1
        file, err = (self.folder / f"{self._count}.{name}" for name in ("out", "err"))
        file.touch()
        out = out or file
        err.touch()
        request = {"arguments": [str(word) for word in arguments], "cwd": str(cwd or self.folder)}
        request |= {"faults": faults, "user": user, "script": script and str(ROOT / script), "stub": stub}
        return Run(self, self.ask({**request, "out": str(out), "err": str(err)}), out, err)

    def run(self, *arguments, **options):
        """Runs the program to its end."""
        run = self.start(*arguments, **options)
        run.wait()
        return run

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=600)
        self._process.stdout.close()


@functools.cache
def shared():
    """One helper process for all tests of a session."""
    folder = tempfile.TemporaryDirectory()
    programs = Programs(folder.name)
    atexit.register(folder.cleanup)
    atexit.register(programs.close)
    return programs


def _fork(request):
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_APPEND), number)
        os.chdir(request["cwd"])
        from hetero_tf.cli.main import main

        if request["stub"]:
            import stub_rounds

            stub_rounds.install(0 if request["stub"] is True else request["stub"])
        if request["user"]:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        if request["faults"]:
            from failing_files import Faults

            Faults(**request["faults"]).install()
        if request["script"]:
            code = _run_script(request["script"], request["arguments"])
        else:
            code = main(["hetero_tf", *request["arguments"]], start=time.monotonic())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_script(path, arguments):
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _serve():
    from hetero_tf.base import hardware

    hardware.import_quietly(list_devices=False)
    # The stub imports `hetero_tf.run.experiment` too.
    import stub_rounds  # noqa: F401

    import hetero_tf.cli.commands.training  # noqa: F401
    from hetero_tf import recipe

    # Reading the declarations of plug-ins and layers takes longer than the rest of a short command; the forks share it.
    recipe.load("digits")
    # Collections take a tenth of the time of a short run; in a fork, they would copy the memory that it shares.
    gc.set_threshold(100_000, 50, 100)
    gc.freeze()
    # Children inherit file descriptor 1, so the pipe of the helper moves to another one.
    responses = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = _fork(request)
        print(json.dumps(answer), file=responses, flush=True)


if __name__ == "__main__":
    _serve()
