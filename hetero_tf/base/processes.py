"""Child processes, and signals: Ctrl-C and those of batch systems end this process at once.

Python runs signal handlers only in the main thread, between two bytecode instructions. So the work runs in a second
thread, which may be inside a compiled call that takes minutes, while the main thread waits. The handler runs actions,
such as saving the last finished round, and calls `os._exit` without `finally` and `atexit`. Files on disk are complete
at any moment. The list of actions belongs to the process, like its signal handlers.
"""

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, BinaryIO

from hetero_tf.base.errors import DiskProblem

# Seconds to wait for a stopped program, which may be saving a round.
STOPPING = 5.0
# Batch systems send one of the last three before the time limit of a job.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
_ACTIONS: list[Callable[[], object]] = []
# Set if `atexit` handlers of a library might never end: the program then ends without them.
SKIPS_CLEANUP = threading.Event()


@contextlib.contextmanager
def before_exit(action: Callable[[], object]) -> Iterator[None]:
    """Run `action` if a signal ends the process inside the block; it must finish within seconds."""
    _ACTIONS.append(action)
    try:
        yield
    finally:
        _ACTIONS.remove(action)


def run_actions() -> bool:
    """Run the actions of all open blocks, newest first, and return True if none failed; a failure stops no other."""
    failed = False
    for action in reversed(_ACTIONS):
        try:
            action()
        except Exception:
            failed = True
    return not failed


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder; remove it at the end of the block, or before a signal ends the process.

    Raises:
        DiskProblem: The folder cannot be created.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="hetero_tf-"))
    except OSError as error:
        raise DiskProblem(
            f"could not create a temporary folder: {error.strerror or error}; set TMPDIR to a writable folder"
        ) from error

    def remove():
        shutil.rmtree(folder, ignore_errors=True)

    with before_exit(remove):
        try:
            yield folder
        finally:
            remove()


def start(command: Sequence[str], output: BinaryIO | None = None, descriptors: Sequence[int] = ()) -> subprocess.Popen:
    """Start a program; it exits together with this process if it calls `exit_with_parent(0)`.

    Args:
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
        words = json.loads(line)
        os.write(results, f"{run_fork(functools.partial(work, words))}\n".encode())


def run_fork(work: Callable[[], int]) -> int:
    """Return the exit code of `work` in a fork of this process, negative for the number of a signal."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def exit_with_parent(pipe: int) -> None:
    """Exit this process, as after a signal, when the other end of a pipe closes.

    Args:
        pipe: Read descriptor of a pipe without data; 0 (standard input) in a process of `start`.
    """

    def wait():
        while os.read(pipe, 1):
            pass
        run_actions()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, name="end with the starter", daemon=True).start()


def describe_exit(code: int) -> str:
    """Describe the exit code of a process that printed no error."""
    return f"was stopped by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def install_handlers(message: str, failure: str = "") -> None:
    """Install handlers that print "stopped by NAME; MESSAGE" and exit with 128 + the signal number.

    Args:
        message: What holds after the actions of `before_exit`.
        failure: The message if an action failed; the default is `message`.
    """
    # Duplicate the descriptor: standard error may be redirected when the signal arrives.
    terminal = os.dup(2)
    first = threading.Lock()

    def stop(number, frame):
        # Later signals re-enter this handler. Ignoring them here would be too late for pending signals, for which
        # Python prints a traceback.
        if not first.acquire(blocking=False):
            return
        text = message if run_actions() else failure or message
        try:
            # Writing to a full pipe without a reader would block forever; the output is already flushed line by line.
            if select.select([], [terminal], [], 0)[1]:
                os.write(terminal, f"\nstopped by {signal.Signals(number).name}; {text}\n".encode())
        except (OSError, ValueError):
            pass  # no reader is left, so only exit
        finally:
            os._exit(128 + number)

    for number in SIGNALS:
        # A signal that is ignored at start-up means nohup or a background job: keep ignoring it.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def _restore_handlers():
    """Restore Python's handlers: TensorFlow overrides SIGTERM in multi-worker runs and ignores it."""
    # Outside the main thread, the handlers belong to the calling program.
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, handler)


def run_in_thread(work: Callable, *arguments: Any) -> Any:
    """Call `work` in a second thread while this one handles signals; return its result or raise its exception."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work, *arguments)
        while not wait([future], 0.2).done:
            _restore_handlers()
    return future.result()
