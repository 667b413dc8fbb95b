"""Child of the fault tests: saves rounds and says how it went. Started with `python -S` so that it is up quickly.

Arguments: import path, folder, first round, last round, floats per array. Exit code: 0, or that of the refusal.
Rounds are pure functions of their number, so that a test can tell a right one from a wrong one by itself.
"""

import os
import sys


def content(number, size):
    """(arrays, info) of a round."""
    import numpy as np

    rng = np.random.default_rng(number)
    arrays = {
        "dense/kernel": rng.normal(size=(size, 2)).astype("f4"),
        "step": np.int64(number),
        "dense/bias": rng.normal(size=size),
        "mask": rng.random((3, 0)) > 0.5,
    }
    return arrays, {"round": number, "best": float(rng.random()), "name": "é/\u2028"}


def main():
    sys.path[:0] = sys.argv[1].split(os.pathsep)
    from hetero_tf.base.errors import UserError
    from hetero_tf.store import checkpoints

    folder, first, last, size = sys.argv[2], *map(int, sys.argv[3:6])
    rounds = [(number, *content(number, size)) for number in range(first, last + 1)]
    os.write(1, b"begin\n")
    try:
        for number, arrays, info in rounds:
            checkpoints.save(folder, number, arrays, info, keep=2)
    except UserError as refusal:
        os.write(1, f"{refusal}\n".encode())
        os._exit(refusal.code)
    os.write(1, b"end\n")
    # Left at once: nothing after the save may be taken for a part of it.
    os._exit(0)


if __name__ == "__main__":
    main()
