"""Child processes: start, fork, stop, and describe the exit code."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import BinaryIO

from hetero_tf.base import exits

# Seconds to wait for a stopped program, which may be saving a round.
STOPPING = 5.0


def start(command: Sequence[str], output: BinaryIO | None = None, descriptors: Sequence[int] = ()) -> subprocess.Popen:
    """Start a program; it exits together with this process if it calls `exit_with_parent(0)`.

    Args:
        command: The program and its flags.
        output: File that gets its output, by default that of this process.
        descriptors: File descriptors that the program inherits.
    """
    # The child exits when this end of the pipe closes, see `exit_with_parent`. Only `serve_forks` reads from it.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=output, stderr=output, pass_fds=descriptors, text=True
    )


def stop(process: subprocess.Popen) -> None:
    """Close the pipe to a process of `start`, and wait a few seconds for its end; see `exit_with_parent`."""
    assert process.stdin is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOPPING)


def serve_forks(results: int, work: Callable[[list[str]], int]) -> None:
    """Fork for each line of standard input, one at a time, until it closes.

    Args:
        results: Descriptor for the exit code of each fork, a line each; negative for the number of a signal.
        work: Called in the fork with the words of the line, a JSON list; returns the exit code.
    """
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            code = 1
            try:
                code = work(json.loads(line))
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(results, f"{code}\n".encode())


def exit_with_parent(pipe: int) -> None:
    """Exit this process, as after a signal, when the other end of a pipe closes.

    Args:
        pipe: Read descriptor of a pipe without data; 0 (standard input) in a process of `start`.
    """

    def wait():
        while os.read(pipe, 1):
            pass
        exits.run_actions()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="end with the starter", daemon=True).start()


def describe_exit(code: int) -> str:
    """Describe the exit code of a process that printed no error."""
    return f"was stopped by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
