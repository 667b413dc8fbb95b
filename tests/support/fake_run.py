"""A fake of the program for tests of sweeps: reads its flags, writes a checkpoint per round, needs no TensorFlow.

Called as `fake_run.py SECONDS FAILING ...`: the seconds of a round, and a part of the names of run folders that fail.
"""

import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np  # noqa: E402

from hetero_tf.base.errors import Locked  # noqa: E402
from hetero_tf.base.processes import exit_with_parent  # noqa: E402
from hetero_tf.recipe import load  # noqa: E402
from hetero_tf.runs import (
    checkpoints,
    environment,
    facts,  # noqa: E402
    metrics_file,
)
from hetero_tf.runs.run_folder import RunFolder  # noqa: E402


def train(recipe, run, threads, seconds):
    """Seals every round that is not sealed yet."""
    newest = checkpoints.load_newest(run.checkpoints, with_arrays=False)
    conditions = environment.environment({"intra_op": 1, "inter_op": threads}, {})
    environment.save(run.environment, conditions)
    run.recipe.write_text(recipe.source)
    for number in range(1 + (newest.round if newest else 0), recipe.rounds + 1):
        time.sleep(seconds)
        last = {"round": number, "global_accuracy": 10.0 * number, "global_loss": 1.0}
        about = {"last": last, "best": last, "totals": {"bytes": 0}, "metrics": facts.digest(b"")}
        about |= {"recipe": recipe.source, "environment": conditions}
        checkpoints.save(run.checkpoints, number, {"weights/x": np.zeros(2, np.float32)}, about, keep=2)
        metrics_file.append(run.metrics, last)


def main(seconds, failing, *words, output=sys.stderr):
    print("data: none", file=output, flush=True)
    options = [word.partition("=")[::2] for word in words]
    flags, overrides = dict(options), [value for name, value in options if name == "--set"]
    run = RunFolder(flags["--run_dir"])
    if failing in run.path.name:
        print("hetero_tf: no luck today", file=output)
        return 6
    try:
        with run.lock():
            train(load(flags["--recipe"], overrides), run, int(flags["--threads"]), float(seconds))
    except Locked as locked:
        print(f"hetero_tf: {locked}", file=output)
        return locked.code
    return 0


if __name__ == "__main__":
    exit_with_parent(0)
    code = main(*sys.argv[1:])
    assert threading.active_count() == 2
    os._exit(code)
