"""Runs `save_rounds.py` under strace, lists its file operations and makes one of them fail or kill the process."""

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from save_rounds import content

from hetero_tf.runs import checkpoints

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("save_rounds.py")
IMPORTS = os.pathsep.join([str(ROOT), str(Path(np.__file__).parents[1])])
SIZE = 50
# `?`: not every processor has every name.
CALLS = (
    "?mkdir,?mkdirat,?open,?openat,?creat,?write,?pwrite64,?writev,?ftruncate,?fsync,?fdatasync,?close,"
    "?rename,?renameat,?renameat2,?unlink,?unlinkat,?rmdir"
)


@dataclass(frozen=True)
class Point:
    """One system call: its name, its number among the calls of that name, and its line in the trace."""

    call: str
    nth: int
    line: str


def command(folder, first, last, size=SIZE):
    """Command line of the child. -S -E: no site packages and no environment, so the system calls are always the same."""
    return [sys.executable, "-S", "-E", "-B", str(CHILD), IMPORTS, str(folder), str(first), str(last), str(size)]


def exporting(folder):
    """Command line of the child that writes the next version to the folder of a level."""
    child = CHILD.with_name("export_version.py")
    return [sys.executable, "-S", "-E", "-B", str(child), IMPORTS, str(folder)]


def run(arguments, **options):
    """Run a command to its end in a minimal environment. One BLAS thread: the trace must not depend on a race."""
    environment = {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=environment, **options)


def strace(log, arguments, inject=None):
    """Run a command under strace, without --seccomp-bpf, which silently disables injections."""
    flags = ["-f", "-y", "-s", "0", "-e", f"trace={CALLS}", "-o", str(log)]
    return run(["strace", *flags, *(["-e", f"inject={inject}"] if inject else []), *arguments])


@functools.cache
def obstacle():
    """Reason why strace cannot inject faults, or None. It is tried, since a sandbox may forbid ptrace."""
    if not shutil.which("strace"):
        return "strace is not installed"
    result = strace(os.devnull, ["/bin/echo", "x"], "write:signal=SIGKILL:when=1")
    if result.returncode == 137 or result.returncode == -9:
        return None
    return f"strace cannot inject faults here: exit {result.returncode}, {result.stderr.strip()[-200:]}"


def need_strace():
    """Skip the test, with the reason, if faults cannot be injected."""
    if obstacle():
        pytest.skip(obstacle())


def points(trace):
    """System calls between the two lines that the child prints, in order."""
    counts, calls, inside = {}, [], False
    for line in trace.splitlines():
        match = re.match(r"\d+ +(\w+)\(", line)
        if not match:
            continue
        call = match[1]
        counts[call] = counts.get(call, 0) + 1
        if call == "write" and re.match(r"\d+ +write\(1<", line):
            inside = not inside
        elif inside:
            calls.append(Point(call, counts[call], line))
    return calls


def check(loaded, rounds):
    """Assert that the loaded round is one of `rounds` and bit-equal to the round saved under its number."""
    assert loaded is not None and loaded.round in rounds
    arrays, info = content(loaded.round, SIZE)
    assert loaded.info == info
    assert list(loaded.arrays) == list(arrays)
    for name, value in arrays.items():
        array = loaded.arrays[name]
        assert (array.dtype, array.shape) == (np.asarray(value).dtype, np.shape(value))
        assert array.tobytes() == np.asarray(value).tobytes()


def fill(folder, numbers):
    """Save rounds in this process."""
    for number in numbers:
        checkpoints.save(folder, number, *content(number, SIZE), keep=2)
