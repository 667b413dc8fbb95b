"""Starts `child.py`, with a fault of one file operation or without, and checks the rounds that it saved."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from child import content

from hetero_tf.runs import checkpoints

ROOT = Path(__file__).parents[2]
IMPORTS = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), str(Path(np.__file__).parents[1])])
SIZE = 50


def command(folder, first, last, size=SIZE):
    """Command line of the child. -S -E: no site packages and no environment, so the operations are always the same."""
    child = Path(__file__).with_name("child.py")
    return [sys.executable, "-S", "-E", "-B", str(child), IMPORTS, str(folder), str(first), str(last), str(size)]


def run(arguments, **options):
    """Run a command to its end in a minimal environment."""
    environment = {"PATH": os.environ["PATH"], "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=environment, **options)


def run_with_fault(folder, number, last, how):
    """Save the round `last` (0: an export) with a fault of operation `number` (0: none): (result, operations)."""
    log = folder.with_suffix(".log")
    return run([*command(folder, last, last), str(number), how, str(log)]), log.stat().st_size


def check(loaded, rounds):
    """Assert that the loaded round is one of `rounds` and bit-equal to the round saved under its number."""
    assert loaded is not None and loaded.round in rounds
    arrays, info = content(loaded.round, SIZE)
    assert loaded.info == info
    assert list(loaded.arrays) == list(arrays)
    for name, value in arrays.items():
        array = loaded.arrays[name]
        assert (array.dtype, array.shape) == (np.asarray(value).dtype, np.shape(value))
        assert array.tobytes() == np.asarray(value).tobytes()


def fill(folder, numbers):
    for number in numbers:
        checkpoints.save(folder, number, *content(number, SIZE), keep=2)
