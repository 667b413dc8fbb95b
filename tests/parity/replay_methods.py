#!/usr/bin/env python3
"""Replays vectors of the methods' public code with hetero_tf in float64 and compares every stage.

    python tests/parity/replay_methods.py DIR

DIR has npz files, whose meta data name their method, and JSON files of splits and of packing cases. For each file and
stage, one line shows the largest difference; the exit code is 1 if one exceeds its tolerance.
"""

import argparse
import importlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The command line's threads on a CPU, see replay.py.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "2")
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np
import replay_cases

MODULES = {
    "FedRolex": "methods_fedrolex",
    "FjORD": "methods_fjord",
    "DepthFL": "methods_depthfl",
    "LG-FedAvg": "methods_lg",
    "fedepth": "methods_fedepth",
    "splitmix": "methods_splitmix",
    "fiarse": "methods_fiarse",
}


def replay_file(path):
    """Replay one file: (stage, ok, detail) of every stage; ok is None for skipped stages."""
    if path.suffix == ".json":
        cases = json.loads(path.read_text())["cases"]
        packing = all("costs" in case for case in cases)
        return replay_cases.replay_packing(path) if packing else replay_cases.replay_partitions(path)
    with np.load(path, allow_pickle=False) as arrays:
        method = json.loads(str(arrays["meta.json"])).get("method")
    if method not in MODULES:
        return [("method", False, f"the meta data name {method!r}; known: {', '.join(MODULES)}")]
    results = importlib.import_module(MODULES[method]).replay(path)
    return [
        (stage, gap <= tolerance, f"{gap:.1e}" + ("" if gap <= tolerance else f"  beyond {tolerance:.0e}"))
        for stage, gap, tolerance in results
    ]


def main(argv=None):
    """Replay a folder and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    files = sorted(path for path in folder.glob("*") if path.suffix in (".npz", ".json"))
    if not files:
        print(f"{folder}: no .npz or .json file")
        return 2
    failed = sum(not _report(path) for path in files)
    print(f"{len(files)} files, {failed} failed")
    return int(failed > 0)


def _report(path):
    """Print a line for each stage of a file; True if all stages are within tolerance."""
    words, all_good = {True: "ok  ", False: "FAIL", None: "-   "}, True
    try:
        lines = replay_file(path)
    except (Exception, SystemExit) as problem:
        # Files of other programs may have any content; the remaining files must still be replayed.
        lines = [("replay", False, f"{type(problem).__name__}: {problem}")]
    for stage, good, detail in lines:
        all_good = all_good and good is not False
        print(f"{words[good]} {path.name:28} {stage:20} {detail}", flush=True)
    return all_good


if __name__ == "__main__":
    sys.exit(main())
