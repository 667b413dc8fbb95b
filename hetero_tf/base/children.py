"""Processes of the program that another one starts, and how they ended."""

import signal
import subprocess
from collections.abc import Sequence


def start(words: Sequence[str], shown: bool = False) -> subprocess.Popen:
    """Starts a program that ends when this one does, if it is `cli.child`.

    Args:
        words: The program and its flags.
        shown: Whether what it says goes where this program's does; else it is read from `stdout`.
    """
    return subprocess.Popen(
        words,
        # Nothing is written to it: the program ends when this process lets go of it, see `cli.child`.
        stdin=subprocess.PIPE,
        stdout=None if shown else subprocess.PIPE,
        stderr=None if shown else subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
    )


def ended(code: int) -> str:
    """Says how a program ended that said nothing."""
    return f"was stopped by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
