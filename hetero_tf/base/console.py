"""What the program says while it works: one live line on a terminal, plain lines when piped, and a log."""

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from hetero_tf.base import files
from hetero_tf.base.errors import UserError

IMPORTED = time.monotonic()


STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


# Of terminals: back to the first column of an empty line; faint; as usual.
CLEAR, DIM, PLAIN = "\r\x1b[2K", "\x1b[2m", "\x1b[22m"


class Console:
    """Prints sentences and progress; a closed pipe or full disk silences it instead of stopping the work.

    Whatever a text quotes, a terminal sees only characters that can be printed, see `printable`. Several threads may
    print.

    Args:
        stream: Where to print; standard error if the result is to be read by a program.
        clock: Seconds, monotonic.
        quiet: Prints nothing; the log gets everything.

    Attributes:
        laps: Seconds of each `lap`, by name.
    """

    def __init__(self, stream=None, clock=time.monotonic, quiet=False):
        self.stream = sys.stdout if stream is None else stream
        self.clock = clock
        self.laps = {}
        self._quiet, self._log, self._unlogged = quiet, None, []
        self._lapped = clock() - age()
        self._live, self._lock = False, threading.Lock()

    def lap(self, name: str) -> None:
        """Ends a part of the work, which lasted since the one before; the first began with the process."""
        now = self.clock()
        self.laps[name], self._lapped = now - self._lapped, now

    def open_log(self, path: Path | str, mark: str) -> None:
        """Adds a mark, all that was said before, and from now on what is said, to a file; each line with its time."""
        with self._lock:
            waiting, self._log, self._unlogged = self._unlogged, path, []
            self._record(printable(f"---- {time.strftime('%Y-%m-%d')}  {mark}"))
            for text, at in waiting:
                self._record(text, at)

    def say(self, text: str) -> None:
        """Prints a sentence on lines of its own, and logs it."""
        with self._lock:
            text = printable(text)
            self._print(text)
            self._record(text)

    def progress(self, text: str, keep: bool = True) -> None:
        """Says how far the work is: in one line of a terminal, which stays if `keep`; else as a line. Logs it."""
        with self._lock:
            text = printable(text)
            if not self.terminal:
                self._print(text)
            elif keep:
                self._print(self._cut(text))
            else:
                self._overwrite(text)
            self._record(text)

    def live(self, text: str) -> None:
        """Shows the state of the work over the last one; only on a terminal, and not in the log."""
        with self._lock:
            if self.terminal:
                self._overwrite(printable(text))

    @property
    def terminal(self) -> bool:
        """Whether a person sees the lines as they come, and a line can be overwritten."""
        seen = self.stream is not None and not self.stream.closed and self.stream.isatty()
        return seen and not self._quiet and os.environ.get("TERM") != "dumb"

    def _print(self, text):
        self._write((CLEAR if self._live else "") + text + "\n")
        self._live = False

    def _overwrite(self, text):
        self._write(CLEAR + DIM + self._cut(text) + PLAIN)
        self._live = True

    def _cut(self, text):
        # Some terminals do not tell their width; in the last column some begin another line.
        width = (os.get_terminal_size(self.stream.fileno()).columns or 80) - 1
        return text if len(text) <= width else text[: width - 3].rpartition("  ")[0][: width - 3] + "..."

    def _write(self, text):
        if self.stream is None or self._quiet:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.stream = None

    def _record(self, text, at=None):
        at = at or time.strftime("%H:%M:%S")
        if self._log is None:
            self._unlogged.append((text, at))
            return
        # A disk that is full stops the work at the next row of metrics, with a sentence of its own.
        with contextlib.suppress(OSError, UserError):
            descriptor = files.open_in_place(self._log, os.O_WRONLY | os.O_APPEND, "append to")
            with open(descriptor, "a", encoding="utf-8") as log:
                log.write("".join(f"{at} {line}\n" for line in text.split("\n")))


def printable(text: str) -> str:
    """A text with every character but line ends that is not printed (controls, bytes that are no UTF-8) as an escape.

    A name out of a file could otherwise move the cursor of a terminal, rename its window or overwrite lines above.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else ascii(char)[1:-1] for char in text)


def prepare_streams() -> None:
    """Makes standard input, output and error fit for a program whose work must not end because a text is not printed.

    One that is closed leads to nowhere: otherwise the next file to be opened would take its place, and noise of a
    library would be written into a checkpoint. What an encoding such as ASCII lacks is written as an escape.
    """
    for name, mode in STREAMS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open to the end)
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def age() -> float:
    """Seconds since this process began; since the import of this module where the system does not tell."""
    try:
        # Fields after the name, which may hold blanks and brackets; the twentieth is the start in ticks since boot.
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 0.0)
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - IMPORTED


def duration(seconds: float) -> str:
    """Seconds for a person: 8 s, 3:05 min, 2:10:00 h."""
    seconds = max(int(seconds), 0)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} h"


def figures(metrics: dict) -> str:
    """`{name: number}` in one line: "global_accuracy 97.12  local_loss 0.0841"."""
    return "  ".join(f"{name} {'-' if value is None else format(value, '.4g')}" for name, value in metrics.items())


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text as lines, the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    cells = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join(map("  ".join, cells))


def engine_lines(report: dict) -> str:
    """How clients are computed, in one line; and a line for each level that could not be computed several at once.

    Args:
        report: As `rounds.engine.report` gives it.
    """
    together: dict[int, list[str]] = {}
    for level, clients in report["clients_at_once"].items():
        together.setdefault(clients, []).append(level)
    ways = [
        f"{f'{clients} clients at once' if clients > 1 else 'one by one'} {_at(levels)}"
        for clients, levels in sorted(together.items(), reverse=True)
    ]
    if report["by_taps"]:
        ways.append(f"wide kernels tap by tap {_at(report['by_taps'])}")
    threads = report["threads"]
    how = [
        *ways,
        f"{report['parallel']} in flight, {threads} thread{'s' * (threads != 1)} each",
        f"{report['precision']}, {report['device']}" + ", compiled by XLA" * report["compiled"],
    ]
    if report["replicas"] > 1:
        how.append(f"{report['replicas']} replicas share each round")
    return "\n".join(["engine: " + "; ".join(how), *report["reasons"]])


def _at(levels):
    """Levels by their names, behind what they have in common."""
    return f"at level{'s' * (len(levels) > 1)} {', '.join(levels)}"


# Seconds between two looks at the work, and between two lines where nobody sees a live one.
EVERY, PIPED = 0.5, 60.0


class Live:
    """Shows what a run is doing, on a thread of its own, from `with` to its end.

    Args:
        console: Where to show it; its clock measures.
    """

    def __init__(self, console: Console):
        self._console, self._lock, self._ended = console, threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._show, name="live", daemon=True)
        self._said = console.clock()
        self._begin("", None, 0, 0)

    def __enter__(self) -> "Live":
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, what: str, expected: float | None = None, steps: int = 0, clients: int = 0) -> None:
        """Begins a part of the work.

        Args:
            what: In a few words, such as "round 3/10".
            expected: Seconds that it will take; None: nobody knows.
            steps, clients: How many there are in it; 0: they are not counted.
        """
        with self._lock:
            self._begin(what, expected, steps, clients)

    def _begin(self, what, expected, steps, clients):
        self._what, self._expected, self._steps, self._clients = what, expected, steps, clients
        self._began, self._more = self._console.clock(), ""
        self._last = self._began
        self._done, self._first_report = [0, 0], (0, 0.0)

    def tell(self, what: str, expected: float | None = None, more: str = "") -> None:
        """Says otherwise what goes on, without beginning anew.

        Args:
            what, expected: As for `begin`; the seconds count from the beginning.
            more: What follows behind the times, where there is room.
        """
        with self._lock:
            self._what, self._expected, self._more = what, expected, more

    def seen(self, steps: int, clients: int) -> None:
        """Counts steps and clients that are done; see `LearningProcess.watched`."""
        with self._lock:
            self._done = [self._done[0] + steps, self._done[1] + clients]
            self._last = self._console.clock()
            if not self._first_report[0]:
                self._first_report = (self._done[0], self._last)

    @property
    def seconds_of_steps(self) -> float | None:
        """Seconds of all steps at the pace from the first report to the last client; None where that is unknown."""
        with self._lock:
            steps, began = self._first_report
            if not 0 < self._clients <= self._done[1] or self._done[0] == steps:
                return None
            return (self._last - began) / (self._done[0] - steps) * self._steps

    @property
    def since_last_step(self) -> float | None:
        """Seconds since the last client was done; None where steps are not seen, or not all of them yet."""
        with self._lock:
            return self._console.clock() - self._last if 0 < self._clients <= self._done[1] else None

    def line(self) -> str:
        """Returns the live line, "" before anything began."""
        with self._lock:
            took = self._console.clock() - self._began
            steps, clients = self._done
            parts = [self._what, duration(took)]
            if self._expected is not None:
                parts[1] = _of(took, self._expected, " of about ")
            if self._steps and steps:
                parts[1] = _of(took, took * self._steps / steps, " of ")
                parts += [f"{clients}/{self._clients} clients", f"{steps:,}/{self._steps:,} steps"]
                parts.append(f"{steps / max(took, 1e-6):,.3g} steps/s")
            parts += [self._more] if self._more else []
            return "  ".join(parts) if self._what else ""

    def _show(self):
        while not self._ended.wait(EVERY):
            text, now = self.line(), self._console.clock()
            if self._console.terminal:
                self._console.live(text)
            elif text and now - max(self._said, self._began) >= PIPED:
                self._said = now
                self._console.progress(text)


def _of(took, whole, of):
    """Two durations, with their unit once where it is the same."""
    (number, unit), told = duration(took).split(), duration(whole)
    return f"{number}{of}{told}" if told.endswith(f" {unit}") else f"{number} {unit}{of}{told}"
