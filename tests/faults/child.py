"""Child of the fault tests: saves rounds, or writes a version of an export, with a fault of one file operation.

Arguments: import path, folder, first round (0: an export), last round, floats per array; then, optionally, the number of
the operation, its fault and the log, see `failing_files.Faults`. Exit code: 0, or that of the error. `python -S` starts
fast. Rounds are pure functions of their number, so a test can check each round independently.
"""

import os
import sys
from pathlib import Path


def content(number, size):
    import numpy as np

    rng = np.random.default_rng(number)
    arrays = {
        "dense/kernel": rng.normal(size=(size, 2)).astype("f4"),
        "step": np.int64(number),
        "dense/bias": rng.normal(size=size),
        "mask": rng.random((3, 0)) > 0.5,
    }
    return arrays, {"round": number, "best": float(rng.random()), "name": "é/\u2028"}


def export(folder):
    """Write the next version to the folder of a level, as the last part of `export`."""
    from hetero_tf.base import files
    from hetero_tf.runs.versions import EXPORTED, create_draft, publish

    with create_draft(Path(folder)) as draft:
        files.write_new(draft / "model", b"new")
        files.write_new(draft / EXPORTED, b"new")
        files.sync_folder(draft)
        publish(draft, None)


def main():
    sys.path[:0] = sys.argv[1].split(os.pathsep)
    from failing_files import Faults

    from hetero_tf.base.errors import UserError
    from hetero_tf.runs import checkpoints

    folder, first, last, size = sys.argv[2], *map(int, sys.argv[3:6])
    rounds = [(number, *content(number, size)) for number in range(first, last + 1)]
    if sys.argv[6:]:
        Faults(folder, int(sys.argv[6]), *sys.argv[7:]).install()
    try:
        if first == 0:
            export(folder)
        else:
            for number, arrays, info in rounds:
                checkpoints.save(folder, number, arrays, info, keep=2)
    except UserError as error:
        print(error)
        sys.exit(error.code)


if __name__ == "__main__":
    main()
