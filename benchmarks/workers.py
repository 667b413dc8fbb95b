#!/usr/bin/env python3
"""Compares the time per round of one process with that of several local devices and workers that share each round.

    benchmarks/workers.py --recipe mnist [--processes 2] [--rounds 4] [--repeats 3] [--set PATH=VALUE ...]

"devices" are logical devices of one process (`launch --local`), "workers" are processes (`--workers`), whose ports are
open to the network. All use the same total number of threads. They start in turns. The time of a round comes from
`timings.jsonl`: the median over all rounds except the first one of each start, without evaluation. "cost" is the time
as a share of that of one process, minus 1: the cost of planning, messages and collectives on the same cores.
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
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
from ports import free_ports  # noqa: E402


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


def rounds_of(commands, folder):
    """Seconds of each round except the first; `commands` start together, and the first one writes the run folder."""
    program = [sys.executable, "-m", "hetero_tf"]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen([*program, *words, f"--run_dir={folder}"], **options) for words in commands]
    for words, process in zip(commands, started):
        output, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{' '.join(words)}\n{output[-2500:]}")
    calls = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    return [call["round_seconds"] for call in calls[1:]]


def commands_of(way, count, threads, shared):
    """The commands that train in one of the three ways."""
    if way == "workers":
        addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(count))
        words = ["train", *shared, f"--threads={max(threads // count, 1)}", f"--workers={addresses}"]
        return [[*words, f"--worker={index}"] for index in range(count)]
    return [[*(["launch", f"--local={count}"] if way == "devices" else ["train"]), *shared, f"--threads={threads}"]]


def main():
    """Prints one line for each way."""
    args = parse()
    # Every round is a call, which gives several values for the median; only the last one is evaluated.
    changes = [f"rounds={args.rounds}", f"evaluate.every={args.rounds}", "checkpoint.every=1", *args.set]
    shared = [f"--recipe={args.recipe}", *(f"--set={change}" for change in changes)]
    shared += [f"--data_dir={args.data_dir}"] if args.data_dir else []
    seconds = {"one process": [], "devices": [], "workers": []}
    for way, of_way in [*seconds.items()] * args.repeats:
        with tempfile.TemporaryDirectory() as folder:
            of_way += rounds_of(commands_of(way, args.processes, args.threads, shared), Path(folder) / "run")
    print(f"recipe {args.recipe}, {args.threads} threads in total, {len(seconds['devices'])} rounds each")
    one = statistics.median(seconds["one process"])
    for way, of_way in seconds.items():
        name = way if way == "one process" else f"{args.processes} {way}"
        median, least, most = statistics.median(of_way), min(of_way), max(of_way)
        print(f"{name:16} {median:.3f} s per round ({least:.3f} to {most:.3f})  cost {100 * (median / one - 1):+.1f} %")


if __name__ == "__main__":
    main()
