"""The progress line of a round: progress, pace and expected time."""

import io

import pytest

from hetero_tf.base import console as module
from hetero_tf.base.console import Console, ProgressDisplay


class Clock:
    """A clock that a test sets."""

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
    assert live.line() == "round 3/10  10 of 40 s  2/10 clients  500/2,000 steps  50 steps/s"
    clock.now += 60
    assert live.line().startswith("round 3/10  1:10 of 4:40 min  ")
    live.begin("tracing the round", 90.0)
    assert live.line() == "tracing the round  0 s of about 1:30 min"
    live.begin("measuring round 3/10")
    clock.now += 61
    assert live.line() == "measuring round 3/10  1:01 min"
    live.begin("tracing the round", 12.0)
    assert live.line() == "tracing the round  0 of about 12 s"


def test_update_keeps_the_start_time(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    live.begin("0/4 runs done")
    clock.now += 5
    live.update("1/4 runs done", 20.0, "x 1/3  y 2/3")
    clock.now += 5
    assert live.line() == "1/4 runs done  10 of about 20 s  x 1/3  y 2/3"
    live.begin("round 1/2")
    assert live.line() == "round 1/2  0 s"


def test_line_fits_80_columns(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    live.begin("round 100/800", steps=32_700, clients=10)
    clock.now += 110
    live.add_progress(16_350, 5)
    assert len(live.line()) < 80


def test_time_since_last_step_needs_all_clients(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    live.begin("round 1/1", steps=4, clients=2)
    live.add_progress(2, 1)
    assert live.since_last_step is None
    clock.now += 3
    live.add_progress(2, 1)
    clock.now += 0.5
    assert live.since_last_step == 0.5
    live.begin("round 2/2", steps=4, clients=0)
    assert live.since_last_step is None


def test_step_pace_excludes_time_before_the_first_step(clock):
    live = ProgressDisplay(Console(io.StringIO(), clock))
    live.begin("round 1/1", steps=10, clients=2)
    clock.now += 60
    live.add_progress(2, 0)
    assert live.seconds_of_steps is None
    clock.now += 4
    live.add_progress(8, 2)
    clock.now += 7
    assert live.seconds_of_steps == 5.0
    # All steps in one report have no pace.
    live.begin("round 2/2", steps=2, clients=2)
    live.add_progress(2, 2)
    assert live.seconds_of_steps is None


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
