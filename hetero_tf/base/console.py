"""Console output: one progress line on a terminal, plain lines when piped, and a log file."""

import contextlib
import functools
import io
import os
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from hetero_tf.base import files
from hetero_tf.base.errors import UserError
from hetero_tf.base.formatting import escape_line, escape_unprintable

IMPORT_TIME = time.monotonic()
STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
# Least columns of names in a table; a narrower terminal wraps its lines.
NARROWEST_COLUMN = 16


class Console:
    """Prints messages and progress; a closed pipe or full disk silences it and does not stop the work.

    A message is one line: control characters and line ends are escaped, see `escape_line`. Several threads may print.

    Args:
        stream: Output stream; standard error if a program reads the result from standard output.
        clock: Monotonic clock in seconds.
        start: Its time at the start of the program; the default is now.
        quiet: Print nothing; the log still gets everything.
        verbose: Print the details of progress.

    Attributes:
        phase_seconds: Seconds of each phase, by name; see `mark_phase`.
    """

    def __init__(self, stream=None, clock=time.monotonic, quiet=False, verbose=False, start=None):
        self.stream = sys.stdout if stream is None else stream
        self.clock = clock
        self.phase_seconds = {}
        self._quiet, self._verbose, self._log, self._unlogged = quiet, verbose, None, []
        self._start = self._phase_start = clock() if start is None else start
        self._lock = threading.Lock()

    def elapsed(self) -> float:
        """Return the seconds since the start of the program."""
        return self.clock() - self._start

    def mark_phase(self, name: str) -> None:
        """Record the time since the previous call under `name`; the first phase starts with the program."""
        now = self.clock()
        self.phase_seconds[name], self._phase_start = now - self._phase_start, now

    def open_log(self, path: Path | str, header: str) -> None:
        """Append a header, all earlier output and all later output to a file, each line with its time."""
        with self._lock:
            unlogged, self._log, self._unlogged = self._unlogged, path, []
            self._record(escape_line(f"---- {time.strftime('%Y-%m-%d')}  {header}"))
            for text, at in unlogged:
                self._record(text, at)

    def say(self, *texts: str) -> None:
        """Print and log messages; a terminal breaks each of them between words or `name value` pairs."""
        for text in texts:
            self._say(text, text)

    def say_lines(self, text: str) -> None:
        """Print and log lines as they are, such as tables and commands; the names in them have no line ends."""
        with self._lock:
            text = escape_unprintable(text)
            self._print(text)
            self._record(text)

    def progress(self, text: str, keep: bool = True, details: str = "") -> None:
        """Print and log progress.

        Args:
            text: Empty: only a verbose console prints.
            keep: Print the line on a terminal too.
            details: The complete line: logged, and printed by a verbose console. Empty: `text` is complete.
        """
        self._say(text, details or text, keep)

    def _say(self, text, details, keep=True):
        with self._lock:
            complete = escape_line(details)
            shown = complete if self._verbose else escape_line(text)
            if (shown or not details) and (keep or self.terminal is None):
                self._print(shown if self.width is None else _fold(shown, self.width))
            self._record(complete)

    @functools.cached_property
    def terminal(self) -> Any:
        """Console of `rich` for a terminal on which a line can be overwritten; None for other streams."""
        is_tty = self.stream is not None and not self.stream.closed and self.stream.isatty()
        if not is_tty or self._quiet or os.environ.get("TERM") == "dumb":
            return None
        import rich.console

        terminal: Any = rich.console.Console(
            file=self.stream, force_terminal=True, soft_wrap=True, color_system="standard"
        )
        # A killed program could not show a hidden cursor again.
        terminal.show_cursor = lambda show=True: False
        return terminal

    @property
    def width(self) -> int | None:
        """Number of columns of the terminal; None for other streams."""
        return self.terminal.width if self.terminal else None

    def _print(self, text):
        if self.stream is None or self._quiet:
            return
        try:
            if self.terminal:
                self.terminal.print(text, markup=False, highlight=False, emoji=False)
            else:
                self.stream.write(f"{text}\n")
                self.stream.flush()
        except (OSError, ValueError):
            self.stream = None

    def _record(self, text, clock_time=None):
        clock_time = clock_time or time.strftime("%H:%M:%S")
        if self._log is None:
            self._unlogged.append((text, clock_time))
            return
        # A full disk raises at the next row of metrics, so ignore it here.
        with contextlib.suppress(OSError, UserError):
            descriptor = files.open_for_update(self._log, os.O_WRONLY | os.O_APPEND, "append to")
            with open(descriptor, "a", encoding="utf-8") as log:
                log.write("".join(f"{clock_time} {line}\n" for line in text.split("\n")))


def _fold(text, width):
    """Break a line between its parts, which two blanks separate, or else between its words; paths stay whole."""
    parts = text.split("  ")
    if len(parts) > 1:
        text = "  ".join(part.replace(" ", "\xa0") for part in parts)
    folded = textwrap.fill(text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return folded.replace("\xa0", " ")


def prepare_streams() -> None:
    """Make the standard streams safe, so that a printing error never ends the work.

    Closed streams are replaced by the null device: otherwise the next opened file would get their descriptor, and
    output of a library could end up in a checkpoint. Characters that the encoding lacks are escaped.
    """
    for name, mode in STREAMS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def format_duration(seconds: float) -> str:
    """Format seconds as 0.42 s, 8.1 s, 42 s, 3:05 min or 2:10:00 h."""
    if seconds < 10:
        return f"{round(max(seconds, 0.0), 2):.2g} s"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} h"


def format_metrics(metrics: dict) -> str:
    """Format `{name: number}` as "global_accuracy 97.12  local_loss 0.0841"."""
    return "  ".join(f"{name} {'-' if value is None else format(value, '.4g')}" for name, value in metrics.items())


def format_table(
    rows: Sequence[Sequence[str]], words: Sequence[int] = (0,), width: int | None = None, folded: int = 0
) -> str:
    """Align rows of text, the first of which are the heads: columns `words` left, others right.

    Args:
        rows: Cells; control characters are escaped.
        width: Columns of the terminal; None: each row is one line.
        folded: Index of the column whose words are folded into `width`.
    """
    from tabulate import tabulate

    lines = [list(map(escape_line, row)) for row in rows]
    align = ["left" if index in words else "right" for index in range(len(lines[0]))]
    others = sum(2 + max(map(len, column)) for index, column in enumerate(zip(*lines)) if index != folded)
    folds: list[int | None] = [None] * len(align)
    folds[folded] = None if width is None else max(width - others, NARROWEST_COLUMN)
    # As heads, the first row would widen the columns.
    return tabulate(lines, (), "plain", disable_numparse=True, colalign=align, maxcolwidths=folds)


# Seconds between two updates of the progress line, and between two lines of piped output.
REFRESH_SECONDS, PIPED_SECONDS = 0.5, 60.0


class ProgressDisplay:
    """Context manager that shows the current activity of a run from a background thread."""

    def __init__(self, console: Console):
        self._console, self._lock, self._stop_event = console, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._show, name="live", daemon=True)
        self._last_printed = console.clock()
        self.begin("")

    def __enter__(self) -> "ProgressDisplay":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop_event.set()
        self._thread.join()

    def begin(self, activity: str, expected: float | None = None, steps: int = 0, clients: int = 0) -> None:
        """Start an activity.

        Args:
            activity: A few words, such as "round 3/10".
            expected: Expected seconds; None if unknown.
            steps, clients: Total counts; 0: not counted.
        """
        with self._lock:
            self._activity, self._expected, self._steps, self._clients = activity, expected, steps, clients
            self._start, self._details = self._console.clock(), ""
            self._last_progress = self._start
            self._done = [0, 0]

    def update(self, activity: str, expected: float | None = None, details: str = "") -> None:
        """Change the text of the current activity without restarting its time.

        Args:
            activity, expected: See `begin`; seconds count from its start.
            details: Appended after the times if there is room.
        """
        with self._lock:
            self._activity, self._expected, self._details = activity, expected, details

    def add_progress(self, steps: int, clients: int) -> None:
        """Add finished steps and clients; see `LearningProcess.with_progress`."""
        with self._lock:
            self._done = [self._done[0] + steps, self._done[1] + clients]
            self._last_progress = self._console.clock()

    @property
    def since_last_step(self) -> float | None:
        """Seconds since the last client finished; None if steps are not counted or not all are done."""
        with self._lock:
            return self._console.clock() - self._last_progress if 0 < self._clients <= self._done[1] else None

    def line(self) -> str:
        """Return the progress line, "" before the first activity."""
        with self._lock:
            elapsed = self._console.clock() - self._start
            steps, clients = self._done
            parts = [self._activity, format_duration(elapsed)]
            if self._expected is not None:
                parts[1] = f"{parts[1]} of about {format_duration(self._expected)}"
            if self._steps and steps:
                parts[1] = f"{format_duration(elapsed)} of {format_duration(elapsed * self._steps / steps)}"
                parts += [f"{clients}/{self._clients} clients", f"{steps:,}/{self._steps:,} steps"]
                parts.append(f"{steps / max(elapsed, 1e-6):,.3g} steps/s")
            parts += [self._details] if self._details else []
            return "  ".join(parts) if self._activity else ""

    def _show(self):
        with contextlib.suppress(OSError, ValueError), _live_line(self._console.terminal) as show:
            while not self._stop_event.wait(REFRESH_SECONDS):
                text, now = self.line(), self._console.clock()
                if show:
                    show(escape_line(text))
                elif text and now - max(self._last_printed, self._start) >= PIPED_SECONDS:
                    self._last_printed = now
                    self._console.progress(text)


@contextlib.contextmanager
def _live_line(terminal):
    """Yield a function that overwrites the last line of a terminal during the block; None without a terminal."""
    if terminal is None:
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    with Live(
        console=terminal, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:
        yield lambda text: live.update(Text(text, "dim", no_wrap=True, overflow="ellipsis"), refresh=True)
