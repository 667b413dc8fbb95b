"""Child of the fault tests: saves rounds and prints the result. The tests use `python -S`, which starts fast.

Arguments: import path, folder, first round, last round, floats per array. Exit code: 0, or that of the error.
Rounds are pure functions of their number, so a test can check each round independently.
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
    from hetero_tf.runs import checkpoints

    folder, first, last, size = sys.argv[2], *map(int, sys.argv[3:6])
    rounds = [(number, *content(number, size)) for number in range(first, last + 1)]
    os.write(1, b"begin\n")
    try:
        for number, arrays, info in rounds:
            checkpoints.save(folder, number, arrays, info, keep=2)
    except UserError as error:
        os.write(1, f"{error}\n".encode())
        os._exit(error.code)
    os.write(1, b"end\n")
    # Exit at once: later system calls must not count as part of the save.
    os._exit(0)


if __name__ == "__main__":
    main()
