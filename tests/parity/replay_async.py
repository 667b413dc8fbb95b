#!/usr/bin/env python3
"""Replays recorded selections of clients and asynchronous rounds with hetero_tf, and compares every stage.

    python tests/parity/replay_async.py DIR

For each npz file and stage, one line shows the compared arrays and their largest difference; the exit code is 1 if one
exceeds its tolerance or if an array is unknown, and 2 without files.
"""

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]

import numpy as np
import replay_arrivals
import replay_selection
from methods_files import Arrays

KINDS = {
    "oort": replay_selection.replay_oort,
    "fedscale": replay_selection.replay_oort,
    "power_of_choice": replay_selection.replay_power_of_choice,
    "fedbuff": replay_arrivals.replay,
    "fedasync": replay_arrivals.replay,
}


def replay_file(path):
    """Replay one file: (stage, largest difference, tolerance, detail) of every stage."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    meta = json.loads(str(arrays.pop("meta.json")))
    kind = meta.get("kind", meta.get("rule", "power_of_choice" if "candidates" in meta else None))
    if kind not in KINDS:
        raise ValueError(f"the meta data name {kind!r}; known: {', '.join(KINDS)}")
    arrays = Arrays(arrays)
    stages = KINDS[kind](meta, arrays)
    unread = sorted(arrays.keys() - arrays.read)
    return [
        *stages,
        ("arrays", float(bool(unread)), 0.0, f"not compared: {', '.join(unread)}" if unread else "all read"),
    ]


def main(argv=None):
    """Replay a folder and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder
    files = sorted(folder.glob("*.npz"))
    if not files:
        print(f"{folder}: no .npz file")
        return 2
    failed = sum(not _report(path) for path in files)
    print(f"{len(files)} files, {failed} failed")
    return int(failed > 0)


def _report(path):
    """Print a line for each stage of a file; True if all stages are within tolerance."""
    try:
        stages = replay_file(path)
    except (Exception, SystemExit) as problem:
        # Files of other programs may have any content; the remaining files must still be replayed.
        stages = [("replay", float("inf"), 0.0, f"{type(problem).__name__}: {problem}")]
    for stage, gap, tolerance, detail in stages:
        word = "ok  " if gap <= tolerance else "FAIL"
        print(f"{word} {path.name:32} {stage:22} {gap:.1e} (at most {tolerance:.0e})  {detail}", flush=True)
    return all(gap <= tolerance for _, gap, tolerance, _ in stages)


if __name__ == "__main__":
    sys.exit(main())
