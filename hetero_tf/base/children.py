"""Processes of the program that another one starts, and how they ended."""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence

from hetero_tf.base import exits

# Milliseconds between two looks whether a silent process lives.
PAUSE = 200
# Seconds in which a stopped program ends: it may be saving a round.
STOPPING = 5.0


def start(words: Sequence[str], shown: bool = False) -> subprocess.Popen:
    """Starts a program that ends when this one does, if it calls `end_with(0)`.

    Args:
        words: The program and its flags.
        shown: Whether what it says goes where this program's does; else it is read from `stdout`.
    """
    return subprocess.Popen(
        words,
        # Nothing is written to it: the program ends when this process lets go of it, see `end_with`.
        stdin=subprocess.PIPE,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )


def stop(process: subprocess.Popen) -> None:
    """Stops a program of `start` and waits until it has ended, a few seconds at most."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOPPING)


def lines(process: subprocess.Popen) -> Iterator[str]:
    """Yields the lines that a process of `start` prints, until it has ended.

    The end of its pipe alone would not do: processes that it started may hold the pipe open after a SIGKILL.
    """
    assert process.stdout is not None
    descriptor, poll, rest = process.stdout.fileno(), select.poll(), b""
    poll.register(descriptor, select.POLLIN)
    while True:
        # Looked at before the pipe: output that is there when the process has ended is its last.
        ended = process.poll() is not None
        block = os.read(descriptor, 2**16) if poll.poll(0 if ended else PAUSE) else None
        *whole, rest = (rest + (block or b"")).split(b"\n")
        for line in whole:
            yield line.decode(errors="backslashreplace")
        if block == b"" or ended and block is None:
            break
    if rest:
        yield rest.decode(errors="backslashreplace")


def end_with(pipe: int) -> None:
    """Ends this process, as a signal would, when nobody holds the other end of a pipe any more.

    Args:
        pipe: File descriptor to which nobody writes; 0, the standard input, in a process of `start`.
    """

    def wait():
        while os.read(pipe, 1):
            pass
        exits.run_actions()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="end with the starter", daemon=True).start()


def ended(code: int) -> str:
    """Says how a program ended that said nothing."""
    return f"was stopped by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
