"""Handles Ctrl-C and signals of batch systems immediately, even during a compiled call that takes minutes.

Python runs signal handlers only in the main thread, between two bytecode instructions. So the work runs in a second
thread while the main thread waits. The handler ends the process after the actions of `base.processes`, such as saving
the last finished round. Files on disk are complete at any moment.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

from hetero_tf.base import processes

# Batch systems send one of the last three before the time limit of a job.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def install(message: str) -> None:
    """Install handlers that print "stopped by NAME; MESSAGE" and exit with 128 + the signal number."""
    # Duplicate the descriptor: standard error may be redirected when the signal arrives.
    terminal = os.dup(2)
    first = threading.Lock()

    def stop(number, frame):
        # Later signals re-enter this handler. Ignoring them here would be too late for pending signals, for which
        # Python prints a traceback.
        if not first.acquire(blocking=False):
            return
        processes.run_actions()
        try:
            # Writing to a full pipe without a reader would block forever; the output is already flushed line by line.
            if select.select([], [terminal], [], 0)[1]:
                os.write(terminal, f"\nstopped by {signal.Signals(number).name}; {message}\n".encode())
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
    results: list[tuple[Any, BaseException | None]] = []

    def run():
        try:
            results.append((work(*arguments), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        _restore_handlers()
    result, error = results[0]
    if error is not None:
        raise error
    return result
