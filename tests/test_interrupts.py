"""Signals: one sentence, the right exit code, at once, whatever the worker thread does."""

import os
import signal
import subprocess
import sys
import time

import programs
import pytest

from hetero_tf.cli import interrupts

# The worker sits in one call into C that no signal interrupts, like a compiled round does.
BUSY = """
import hashlib, sys
from hetero_tf.cli import interrupts
interrupts.install("all is well")
def work():
    print("busy", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)
    print("ended", flush=True)
interrupts.in_worker(work)
"""


def begin(script, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-c", script], text=True, env=programs.environment(), **options)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_long_call_does_not_delay_the_answer(name):
    with begin(BUSY) as process:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(getattr(signal, name))
        assert process.wait(timeout=600) == 128 + getattr(signal, name)
        assert (process.stdout.read(), process.stderr.read()) == ("", f"\nstopped by {name}; all is well\n")


def test_what_is_ignored_from_the_start_stays_ignored():
    """nohup: the terminal goes, the run goes on."""

    def hang_up():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with begin(BUSY, preexec_fn=hang_up) as process:
        assert process.stdout.readline() == "busy\n"
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 143


def test_a_pipe_that_nobody_reads_does_not_hold_the_end():
    """Standard output and error are full and the worker is stuck in writing to them."""
    script = BUSY.replace(
        'hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**9)', 'sys.stdout.write("x" * 10**7); sys.stdout.flush()'
    )
    with begin(script, stderr=subprocess.STDOUT) as process:
        assert b"".join(os.read(process.stdout.fileno(), 1) for _ in range(5)) == b"busy\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 130


def test_the_worker_gives_its_result_or_its_exception():
    assert interrupts.in_worker(lambda: 3) == 3
    with pytest.raises(KeyError, match="lost"):
        interrupts.in_worker(lambda: {}["lost"])
