#!/usr/bin/env python3
"""Compares the time per round of one process with that of several local processes that share each round.

    benchmarks/workers.py --recipe mnist [--processes 2] [--rounds 4] [--repeats 3] [--set PATH=VALUE ...]

One process has as many threads as all of the others together. Both are started in turns; a round's time is what
`timings.jsonl` says, the median over all rounds but the first one of each start, without measuring. "cost" is the time
of several processes as a share of that of one, minus 1: what planning, messages and collectives cost, since both
have the same cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="mnist")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    parser.add_argument("--data_dir", type=Path)
    return parser.parse_args()


def rounds_of(words, folder):
    """Seconds of each round of a start but its first one."""
    program = [sys.executable, "-m", "hetero_tf", *words, f"--run_dir={folder}"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    calls = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    return [call["round_seconds"] for call in calls[1:]]


def main():
    """Prints one line for each way, and the cost."""
    args = parse()
    shared = [f"--recipe={args.recipe}", f"--threads={args.threads}", f"--set=rounds={args.rounds}"]
    # Every round is a call, so that there are several to take the median of; only the last one is measured.
    shared += [
        f"--set=evaluate.every={args.rounds}",
        "--set=checkpoint.every=1",
        *(f"--set={each}" for each in args.set),
    ]
    shared += [f"--data_dir={args.data_dir}"] if args.data_dir else []
    ways = {"one": ["train", *shared], "several": ["launch", f"--local={args.processes}", *shared]}
    seconds = {name: [] for name in ways}
    for name, words in [*ways.items()] * args.repeats:
        with tempfile.TemporaryDirectory() as folder:
            seconds[name] += rounds_of(words, Path(folder) / "run")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(f"recipe {args.recipe}, {args.threads} threads in all, {len(seconds['one'])} rounds each")
    for name, count in (("one", 1), ("several", args.processes)):
        least, most = min(seconds[name]), max(seconds[name])
        print(f"{count} process{'es' * (count > 1):20} {medians[name]:.3f} s a round ({least:.3f} to {most:.3f})")
    print(f"cost                  {100 * (medians['several'] / medians['one'] - 1):+.1f} %")


if __name__ == "__main__":
    main()
