"""Starts the runs of a sweep: as forks of a process that has imported TensorFlow, or as separate processes."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetero_tf.base import children, exits

# Line of a finished round; lines of a running round do not show the loss.
_ROUND = re.compile(r"round +(\d+)/(\d+)  (?:.*  )?loss ")
# Prefixes of the lines with the reason why a run ended.
_MESSAGE_PREFIXES = ("hetero_tf: ", "stopped by ")


@dataclass(frozen=True)
class Program:
    """Command of a run.

    Attributes:
        command: The program; with `--fork DESCRIPTOR` it calls `children.serve_forks`.
        flags: Flags of every run.
        threads: Threads of a new run; a resumed run keeps its count, on which its exact numbers depend.
        forks: Fork the runs from one process, which imports TensorFlow once.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...]
    threads: int
    forks: bool


def can_fork() -> bool:
    """Return True on Linux without a visible GPU: elsewhere a library may start threads during its import."""
    has_gpu = os.path.exists("/dev/nvidiactl") and os.environ.get("CUDA_VISIBLE_DEVICES") != "-1"
    return sys.platform == "linux" and not has_gpu


class Launcher:
    """Context manager that trains one run after another.

    With `Program.forks` a process starts at the first run, forks for each run and ends with the context.
    """

    def __init__(self, program: Program):
        self._program, self._resources = program, contextlib.ExitStack()
        self._server: subprocess.Popen | None = None
        self._results = -1

    def __enter__(self) -> "Launcher":
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def run(self, flags: Sequence[str], on_round: Callable[[int, int], None]) -> tuple[int, str, float]:
        """Train a run to its end.

        Args:
            flags: Its flags, in addition to those of every run.
            on_round: Called with the number of a finished round and the total.

        Returns:
            The exit code, the error message if the code is not 0, and the seconds.
        """
        start, words = time.monotonic(), [*self._program.flags, *flags]
        code, problem = self._run_fork(words, on_round) if self._program.forks else self._run_process(words, on_round)
        return code, problem, time.monotonic() - start

    def _run_process(self, words, on_round):
        with children.start([*self._program.command, *words]) as process:
            message = _follow(process, lambda: process.poll() is not None, on_round)
            return _result(process.wait(), message)

    def _run_fork(self, words, on_round):
        server, results = self._server or self._start_server(), self._results
        # If the server has ended, its results end too.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(words), file=server.stdin, flush=True)
        message = _follow(server, lambda: bool(select.select([results], [], [], 0)[0]), on_round)
        text = os.read(results, 16)
        if text:
            return _result(int(text), message)
        self._resources.close()
        self._server = None
        return _result(server.wait(), message)

    def _start_server(self):
        self._results, descriptor = os.pipe()
        self._resources.callback(os.close, self._results)
        with open(descriptor, "wb"):
            server = children.start([*self._program.command, "--fork", str(descriptor)], descriptors=[descriptor])
        self._server = self._resources.enter_context(server)
        return server


def _follow(process, has_ended, on_round):
    """Report the rounds that a run prints until its end; return its last message."""
    message = ""
    with exits.before_exit(lambda: children.stop(process)):
        for line in children.read_lines(process, has_ended):
            if match := _ROUND.match(line):
                on_round(int(match[1]), int(match[2]))
            message = line.strip() if line.startswith(_MESSAGE_PREFIXES) else message
    return message


def _result(code, message):
    """Return the exit code, and the error message if the code is not 0."""
    problem = message.removeprefix(_MESSAGE_PREFIXES[0]) or children.describe_exit(code)
    return code, problem if code else ""
