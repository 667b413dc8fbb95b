"""What a person sees: lines when piped, one live line on a terminal, a log, and no crash without a listener."""

import io
import os
import pty

import pytest

from hetero_tf.console import Console, duration, figures


def test_piped_output_is_plain_lines_and_is_logged(tmp_path):
    out = io.StringIO()
    console = Console(out)
    console.say("before the run")
    console.log = tmp_path / "log.txt"
    console.progress("round 1")
    console.progress("round 2")
    console.say("done")
    assert out.getvalue() == "before the run\nround 1\nround 2\ndone\n"
    assert console.log.read_text() == "round 1\nround 2\ndone\n"


def terminal(monkeypatch, kind="xterm", columns=40):
    """A console on a pseudo terminal, and a function that reads what came out of it."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((columns, 24)))
    stream = os.fdopen(theirs, "w")
    return Console(stream), lambda: os.read(ours, 10000).decode()


def test_a_terminal_has_one_live_line_that_fits(monkeypatch):
    console, read = terminal(monkeypatch)
    console.progress("round 1" + "." * 100)
    assert read() == "\r\x1b[2Kround 1" + "." * 32
    console.progress("round 2")
    assert read() == "\r\x1b[2Kround 2"
    console.say("done")
    console.say("next")
    assert read() == "\r\ndone\r\nnext\r\n"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    console, read = terminal(monkeypatch, "dumb")
    console.progress("round 1")
    assert read() == "round 1\r\n"


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_nobody_listens(tmp_path, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

    console = Console(Gone())
    console.log = tmp_path / "log.txt"
    console.say("one")
    console.progress("two")
    assert console.log.read_text() == "one\ntwo\n"


def test_a_log_that_cannot_be_written_does_not_stop_the_work():
    out = io.StringIO()
    console = Console(out)
    console.log = "/dev/full"
    console.say("one")
    assert out.getvalue() == "one\n"


@pytest.mark.parametrize(("seconds", "text"), [
    (-3, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1:00 min"), (185, "3:05 min"), (3600, "1:00:00 h"),
    (7810, "2:10:10 h"), (360000, "100:00:00 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_figures():
    assert figures({"a": 97.12345, "b": 0.084149, "c": None, "d": 12345.6, "e": float("nan")}) == (
        "a 97.12  b 0.08415  c -  d 1.235e+04  e nan")
