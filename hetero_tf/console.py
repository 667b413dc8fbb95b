"""What the program says while it works: one live line on a terminal, plain lines when piped, and a log."""

import contextlib
import os
import sys
import time


class Console:
    """Prints sentences and progress; a closed pipe or full disk silences it instead of stopping the work.

    Args:
        stream: Where to print; standard error if the result is to be read by a program.
        clock: Seconds, monotonic.
    """

    def __init__(self, stream=None, clock=time.monotonic):
        self.stream = sys.stdout if stream is None else stream
        self.clock = clock
        self.log = None
        self._live = False

    def say(self, text):
        """Prints a sentence on lines of its own, and logs it."""
        self._write(("\n" if self._live else "") + text + "\n")
        self._live = False
        self._record(text)

    def progress(self, text):
        """Shows the state of the work: over the last one on a terminal, else as a line."""
        if self._terminal():
            # Some terminals do not tell their width.
            width = os.get_terminal_size(self.stream.fileno()).columns or 80
            self._write("\r\x1b[2K" + text[:width - 1])
            self._live = True
        else:
            self._write(text + "\n")
        self._record(text)

    def _terminal(self):
        return self.stream is not None and self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def _write(self, text):
        if self.stream is None:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.stream = None

    def _record(self, text):
        if self.log is not None:
            # A disk that is full stops the work at the next row of metrics, with a sentence of its own.
            with contextlib.suppress(OSError), open(self.log, "a", encoding="utf-8") as log:
                log.write(text + "\n")


def duration(seconds):
    """Seconds for a person: 8 s, 3:05 min, 2:10:00 h."""
    seconds = max(int(seconds), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} h"


def figures(metrics):
    """`{name: number}` in one line: "global_accuracy 97.12  local_loss 0.0841"."""
    return "  ".join(f"{name} {'-' if value is None else format(value, '.4g')}" for name, value in metrics.items())
