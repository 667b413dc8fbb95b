"""Answers signals at once, also while a compiled call of minutes is running: Ctrl-C, and those of batch systems.

Python runs signal handlers in the main thread and only between two of its own instructions. So the work goes into
a second thread, the main thread waits, and the handler ends the process after the actions of `base.exits`, such as
saving the last finished round; what is on disk is whole at any moment.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from typing import Any

from hetero_tf.base import exits

# Batch systems announce the end of a job's time by one of the last three.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)


def install(sentence: str) -> None:
    """From now on a signal prints "stopped by NAME; SENTENCE" and ends the process with 128 + its number."""
    # A copy of its own: standard error may be pointed elsewhere when the signal comes.
    terminal = os.dup(2)
    first = threading.Lock()

    def stop(number, frame):
        # Later signals run this handler inside itself. Ignoring them from here on would come too late for those that
        # Python has noted already: it prints a traceback for each of them.
        if not first.acquire(blocking=False):
            return
        exits.run_actions()
        try:
            # A pipe that nobody reads would hold the program for ever; its output is flushed line by line already.
            if select.select([], [terminal], [], 0)[1]:
                os.write(terminal, f"\nstopped by {signal.Signals(number).name}; {sentence}\n".encode())
        except (OSError, ValueError):
            pass  # nobody listens any more, and there is nothing left to do but end
        finally:
            os._exit(128 + number)

    for number in SIGNALS:
        # Ignored from the start means nohup or a background job: it shall stay so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def _keep_handlers():
    """Sets Python's handlers again: TensorFlow takes SIGTERM for itself where processes share a run, and ignores it."""
    # Those of a program that runs in another thread are not ours.
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if callable(handler := signal.getsignal(number)):
                signal.signal(number, handler)


def in_worker(work: Callable[[], Any]) -> Any:
    """Runs `work()` in a second thread while this one stays ready for signals; gives its result or its exception."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        _keep_handlers()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
