"""What a person sees of the work between two lines: a live line on a terminal, else a line a minute."""

import threading
from types import TracebackType

from hetero_tf.base.console import Console, duration

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
