#!/usr/bin/env python3
"""Replays recorded results of other people's programs with hetero_tf and compares every stage.

    python tests/parity/replay.py DIR [--precision float64] [--engine sequential]

DIR has npz files, whose meta data name their method, and JSON files of splits and of packing cases, in the formats of
`tests/parity/README.md`. For each file and stage, one line shows the largest difference and its tolerance. The exit code
is 1 if one exceeds it, and 2 without files. `--precision` and `--engine` select some of the runs of each file.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The command line's threads on a CPU. With several threads inside an operation, TensorFlow 2.21's oneDNN kernels crash
# on the float32 ResNet without norms.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np
import recorded_arrivals
import recorded_methods
import recorded_selections
import recorded_splits

# The module with `replay(path, method)` of each method. A file without a name has the model of HeteroFL's program.
MODULES = {
    **dict.fromkeys(recorded_methods.METHODS, recorded_methods),
    **dict.fromkeys(("oort", "fedscale", "power_of_choice"), recorded_selections),
    **dict.fromkeys(("fedbuff", "fedasync"), recorded_arrivals),
}


def method_of(meta):
    """The method that the meta data of a file name."""
    implied = "power_of_choice" if "candidates" in meta else "heterofl" if "model" in meta else None
    method = meta.get("method", meta.get("kind", meta.get("rule", implied)))
    if method not in MODULES:
        raise SystemExit(f"the meta data name {method!r}; known: {', '.join(MODULES)}")
    return method


def replay_file(path, **runs):
    """Replay one file: (stage, largest difference, tolerance, detail or nothing) of every stage."""
    if path.suffix == ".json":
        return recorded_splits.replay(path)
    with np.load(path, allow_pickle=False) as arrays:
        method = method_of(json.loads(str(arrays["meta.json"])))
    return MODULES[method].replay(path, method, **runs)


def main(argv=None):
    """Replay a folder and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--precision", dest="precisions", choices=("float64", "float32"), action="append")
    parser.add_argument("--engine", dest="engines", choices=("sequential", "stacked"), action="append")
    runs = {name: value for name, value in vars(parser.parse_args(argv)).items() if value}
    folder = runs.pop("folder")
    files = sorted(path for path in folder.glob("*") if path.suffix in (".npz", ".json"))
    if not files:
        print(f"{folder}: no .npz or .json file")
        return 2
    failed = sum(not report(path, runs) for path in files)
    print(f"{len(files)} files, {failed} failed")
    return int(failed > 0)


def report(path, runs):
    """Print a line for each stage of a file; True if all stages are within tolerance."""
    try:
        stages = replay_file(path, **runs)
    except (Exception, SystemExit) as problem:
        # Files of other programs may have any content; the remaining files must still be replayed.
        stages = [("replay", math.inf, 0.0, f"{type(problem).__name__}: {problem}")]
    for stage, gap, tolerance, *detail in stages:
        word = "ok  " if gap <= tolerance else "FAIL"
        print(f"{word} {path.name:28} {stage:30} {gap:.1e} (at most {tolerance:.0e})", *detail, flush=True)
    return all(gap <= tolerance for _, gap, tolerance, *_ in stages)


if __name__ == "__main__":
    sys.exit(main())
