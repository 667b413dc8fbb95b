"""Saved rounds: their contents and checks, and a program that saves rounds, or writes a version of an export.

Arguments of the program: folder, first round (0: an export), last round, floats per array. Exit code: 0, or that of the
error. Rounds are pure functions of their number, so a test can check each round independently.
"""

import sys
from pathlib import Path

import numpy as np

from hetero_tf.base import files
from hetero_tf.base.errors import UserError
from hetero_tf.runs import checkpoints
from hetero_tf.runs.versions import EXPORTED, create_draft, publish

SIZE = 50


def content(number, size=SIZE):
    """The arrays and the facts of a round."""
    rng = np.random.default_rng(number)
    arrays = {
        "dense/kernel": rng.normal(size=(size, 2)).astype("f4"),
        "step": np.int64(number),
        "dense/bias": rng.normal(size=size),
        "mask": rng.random((3, 0)) > 0.5,
    }
    return arrays, {"round": number, "best": float(rng.random()), "name": "é/\u2028"}


def fill(folder, numbers, size=SIZE):
    for number in numbers:
        checkpoints.save(folder, number, *content(number, size), keep=2)


def check(loaded, rounds):
    """Assert that the loaded round is one of `rounds` and bit-equal to the round saved under its number."""
    assert loaded is not None and loaded.round in rounds
    arrays, info = content(loaded.round)
    assert loaded.info == info
    assert list(loaded.arrays) == list(arrays)
    for name, value in arrays.items():
        array = loaded.arrays[name]
        assert (array.dtype, array.shape) == (np.asarray(value).dtype, np.shape(value))
        assert array.tobytes() == np.asarray(value).tobytes()


def export(folder):
    """Write the next version to the folder of a level, as the last part of `export`."""
    with create_draft(Path(folder)) as draft:
        files.write_new(draft / "model", b"new")
        files.write_new(draft / EXPORTED, b"new")
        files.sync_folder(draft)
        publish(draft, None)


if __name__ == "__main__":
    first, last, size = map(int, sys.argv[2:])
    try:
        export(sys.argv[1]) if first == 0 else fill(sys.argv[1], range(first, last + 1), size)
    except UserError as error:
        print(error)
        sys.exit(error.code)
