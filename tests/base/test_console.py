"""Console output: lines when piped, one progress line on a terminal, a log, and no crash without a reader."""

import io
import os
import pty
import re
import select
import sys

import pytest

from hetero_tf.base import console as module
from hetero_tf.base.console import Console, ProgressDisplay, format_duration, format_metrics


def test_piped_output_is_plain_lines_and_is_logged(tmp_path):
    out = io.StringIO()
    console = Console(out)
    console.say("before the run")
    console.open_log(tmp_path / "log.txt", "train this")
    console.progress("round 1")
    console.progress("round 2", keep=False)
    console.say_lines("done\nat last")
    assert out.getvalue() == "before the run\nround 1\nround 2\ndone\nat last\n"
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", line[:8]) for line in lines)
    assert re.fullmatch(r"---- \d{4}-\d\d-\d\d  train this", lines[0][9:])
    assert logged(tmp_path) == ["before the run", "round 1", "round 2", "done", "at last"]


def logged(folder):
    """The lines of a log after its header, without their times."""
    return [line[9:] for line in (folder / "log.txt").read_text("utf-8").split("\n")[1:-1]]


def test_a_quiet_console_prints_nothing_and_logs_everything(tmp_path, monkeypatch):
    console, read = terminal(monkeypatch, quiet=True)
    console.open_log(tmp_path / "log.txt", "mark")
    console.say("one")
    console.progress("two")
    console.stream.write("end")
    console.stream.flush()
    assert read() == "end" and logged(tmp_path) == ["one", "two"]


def terminal(monkeypatch, kind="xterm", columns=40, quiet=False):
    """A console on a pseudo terminal, and a function that reads what came out of it."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", kind)
    # Worker processes of the tests have it, and it comes before the size of the terminal.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    stream = os.fdopen(theirs, "w")

    def read():
        # One read gives what has arrived so far; what was written later may need another one.
        text = os.read(ours, 10000)
        while select.select([ours], [], [], 0.2)[0]:
            text += os.read(ours, 10000)
        return text.decode()

    return Console(stream, quiet=quiet), read


def test_a_terminal_shows_one_progress_line_that_fits(monkeypatch):
    # The terminal is read until it is silent for 0.2 s.
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.4)
    console, read = terminal(monkeypatch)
    console.progress("not kept", keep=False)
    with ProgressDisplay(console) as live:
        live.begin("round 2  words that stay  and words that are cut")
        assert "\x1b[2mround 2  words that stay  and words tha\u2026\x1b[0m" in read()
        console.progress("round 2  measured")
        assert "\r\x1b[2Kround 2  measured\r\n" in read()
    console.say("[bold]done[/]")
    # The last progress line is removed, and the cursor was never hidden.
    assert read().endswith("\x1b[2K[bold]done[/]\r\n")


def test_a_terminal_that_closes_does_not_stop_the_work(monkeypatch):
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.001)
    ours, theirs = pty.openpty()
    console = Console(os.fdopen(theirs, "w"))
    assert console.terminal
    os.close(ours)
    with ProgressDisplay(console) as live:
        live.begin("round 1")
        live._thread.join(10)
        console.say("one")
    assert console.stream is None


@pytest.mark.parametrize(("verbose", "printed"), [(False, "short"), (True, "round 1  all metrics")])
def test_the_log_and_a_verbose_console_have_the_details(tmp_path, verbose, printed):
    console = Console(io.StringIO(), verbose=verbose)
    console.open_log(tmp_path / "log.txt", "mark")
    console.progress("short", details="round 1  all metrics")
    console.progress("", details="last: round 1")
    assert console.stream.getvalue() == f"{printed}\n" + "last: round 1\n" * verbose
    assert logged(tmp_path) == ["round 1  all metrics", "last: round 1"]


def test_a_message_is_folded_between_words_on_a_terminal(tmp_path, monkeypatch):
    console, read = terminal(monkeypatch, columns=30)
    console.open_log(tmp_path / "log.txt", "train this")
    text = "best: round 7  global_loss 0.285  global_accuracy 91.25"
    console.say(text)
    console.say("note: /a/path/that/is/wider/than/thirty/columns stays whole")
    lines = read().replace("\r", "").splitlines()
    assert lines[:3] == ["best: round 7", "    global_loss 0.285", "    global_accuracy 91.25"]
    assert "    /a/path/that/is/wider/than/thirty/columns" in lines
    assert logged(tmp_path)[0] == text
    piped = io.StringIO()
    Console(piped).say(text)
    assert piped.getvalue() == f"{text}\n"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    console, read = terminal(monkeypatch, "dumb")
    console.progress("round 1")
    assert read() == "round 1\r\n"


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_closed_output_is_ignored(tmp_path, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

    console = Console(Gone())
    console.open_log(tmp_path / "log.txt", "mark")
    console.say("one")
    console.progress("two")
    assert logged(tmp_path) == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, \u00e9 \u6f22 \U0001f600\nhetero_tf: forged", "plain, \u00e9 \u6f22 \U0001f600\\nhetero_tf: forged"),
        ("\x1b]0;title\x07\x9b2J\r\b\x7f\t", r"\x1b]0;title\x07\x9b2J\r\x08\x7f\t"),
        ("\u202etxt.exe\u2028\udcff\ufeff", r"\u202etxt.exe\u2028\udcff\ufeff"),
    ],
)
def test_control_characters_are_escaped_in_output_and_log(tmp_path, text, shown):
    out = io.StringIO()
    console = Console(out)
    console.open_log(tmp_path / "log.txt", "mark")
    for method in (console.say, console.say, console.progress):
        method(text)
    assert out.getvalue() == f"{shown}\n" * 3 and logged(tmp_path) == [shown] * 3
    assert module.format_table([("a", "b"), (text, text)]).split("\n")[1].split("  ") == [shown, shown]
    console.say_lines("one\r\ntwo\x1b")
    assert out.getvalue().endswith("\none\\r\ntwo\\x1b\n")


def test_closed_streams_are_replaced_and_missing_characters_escaped(monkeypatch):
    written = io.BytesIO()
    for name, stream in (("stdin", None), ("stdout", io.TextIOWrapper(written, "ascii")), ("stderr", None)):
        monkeypatch.setattr(sys, name, stream)
    module.prepare_streams()
    Console().say("\u00e9")
    assert written.getvalue() == b"\\xe9\n" and sys.stdin.read() == "" and sys.stderr.write("x") == 1


def test_a_log_that_cannot_be_written_does_not_stop_the_work():
    out = io.StringIO()
    console = Console(out)
    console.open_log("/dev/full", "mark")
    console.say("one")
    assert out.getvalue() == "one\n"


def test_durations_metrics_and_tables():
    texts = {-3: "0 s", 0.004: "0 s", 0.416: "0.42 s", 8.07: "8.1 s", 9.99: "10 s", 10.2: "10 s", 59.9: "59 s"}
    texts |= {60: "1:00 min", 185: "3:05 min", 3600: "1:00:00 h", 360000: "100:00:00 h"}
    assert {seconds: format_duration(seconds) for seconds in texts} == texts
    assert (
        format_metrics({"a": 97.12345, "b": 0.084149, "c": None, "d": 12345.6})
        == "a 97.12  b 0.08415  c -  d 1.235e+04"
    )
    assert module.format_table([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc   d"
    folded = module.format_table([("a", "two words of text"), ("ccc", "d")], (0, 1), width=21, folded=1)
    assert folded == "a    two words of\n     text\nccc  d"


def test_phases_sum_to_the_time_since_the_start():
    times = iter([102.5, 103.0, 110.0, 111.0])
    console = Console(io.StringIO(), clock=lambda: next(times), start=96.0)
    for name in ("start", "data", "build"):
        console.mark_phase(name)
    assert console.phase_seconds == {"start": 6.5, "data": 0.5, "build": 7.0}
    assert console.elapsed() == 15.0


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_line_shows_progress_and_expected_time(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    assert live.line() == ""
    live.begin("round 3/10", steps=2000, clients=10)
    clock.now += 2
    assert live.line() == "round 3/10  2 s"
    live.add_progress(300, 0)
    live.add_progress(200, 2)
    clock.now += 8
    assert (
        live.line() == "round 3/10  10 s of 40 s  2/10 clients  500/2,000 steps  50 steps/s" and len(live.line()) < 80
    )
    clock.now += 60
    assert live.line().startswith("round 3/10  1:10 min of 4:40 min  ")
    live.begin("tracing the round", 90.0)
    assert live.line() == "tracing the round  0 s of about 1:30 min"
    live.begin("measuring round 3/10")
    clock.now += 61
    assert live.line() == "measuring round 3/10  1:01 min"
    live.begin("0/4 runs done")
    clock.now += 10
    live.update("1/4 runs done", 20.0, "x 1/3  y 2/3")
    assert live.line() == "1/4 runs done  10 s of about 20 s  x 1/3  y 2/3"


def test_time_since_the_last_step_needs_all_clients(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    live.begin("round 1/1", steps=10, clients=2)
    clock.now += 60
    live.add_progress(2, 0)
    assert live.since_last_step is None
    clock.now += 4
    live.add_progress(8, 2)
    clock.now += 7
    assert live.since_last_step == 7.0
    live.begin("round 3/3", steps=4, clients=0)
    assert live.since_last_step is None


def test_piped_output_has_a_line_per_minute(clock, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.001)
    out = io.StringIO()
    console = Console(out, clock)
    console.open_log(tmp_path / "log.txt", "mark")
    with ProgressDisplay(console) as live:
        live.begin("round 1/2", steps=10, clients=1)
        for _ in range(3):
            seen = out.getvalue().count("\n")
            clock.now += module.PIPED_SECONDS + 1
            while out.getvalue().count("\n") == seen:
                pass
    assert out.getvalue() == "round 1/2  1:01 min\nround 1/2  2:02 min\nround 1/2  3:03 min\n"
    assert (tmp_path / "log.txt").read_text().count("round 1/2") == 3


def test_display_thread_ends_with_its_block(clock):
    with pytest.raises(ZeroDivisionError), ProgressDisplay(Console(io.StringIO(), clock)) as live:
        raise ZeroDivisionError
    assert not live._thread.is_alive()
