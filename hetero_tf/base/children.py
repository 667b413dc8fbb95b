"""Child processes: start, fork, read output, stop, and describe the exit code."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from hetero_tf.base import exits

# Milliseconds between two checks of a silent process.
PAUSE = 200
# Seconds to wait for a stopped program, which may be saving a round.
STOPPING = 5.0


def start(command: Sequence[str], inherit_output: bool = False, descriptors: Sequence[int] = ()) -> subprocess.Popen:
    """Start a program; it exits together with this process if it calls `exit_with_parent(0)`.

    Args:
        command: The program and its flags.
        inherit_output: Write to the output of this process; otherwise the caller reads `stdout`.
        descriptors: File descriptors that the program inherits.
    """
    return subprocess.Popen(
        command,
        # The child exits when this end of the pipe closes, see `exit_with_parent`. Only `serve_forks` reads from it.
        stdin=subprocess.PIPE,
        stdout=None if inherit_output else subprocess.PIPE,
        stderr=None if inherit_output else subprocess.STDOUT,
        pass_fds=descriptors,
        text=True,
        errors="backslashreplace",
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


def read_lines(process: subprocess.Popen, has_ended: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines that a process of `start` prints, until `has_ended()`.

    Waiting for the end of the pipe is not enough: its child processes may keep the pipe open after a SIGKILL.
    """
    assert process.stdout is not None
    descriptor, poll, rest = process.stdout.fileno(), select.poll(), b""
    poll.register(descriptor, select.POLLIN)
    while True:
        # Test this before the pipe: output read after the end is complete.
        ended = has_ended()
        block = os.read(descriptor, 2**16) if poll.poll(0 if ended else PAUSE) else None
        *complete, rest = (rest + (block or b"")).split(b"\n")
        for line in complete:
            yield line.decode(errors="backslashreplace")
        if block == b"" or ended and block is None:
            break
    if rest:
        yield rest.decode(errors="backslashreplace")


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
