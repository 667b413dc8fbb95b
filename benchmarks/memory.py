#!/usr/bin/env python3
"""Measures the resident memory of a run over many rounds, or of a program that builds many learning processes.

benchmarks/memory.py --recipe tiny/digits --rounds 1000 [--set levels.mix=a-b-c-d-e] [--json]
benchmarks/memory.py --recipe tiny/digits --processes 50

Each round is planned, trained and measured. Each learning process trains one round and is deleted.
"""

import argparse
import gc
import json
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware


def resident_mib():
    """Resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def arguments():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tiny/digits")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--processes", type=int, help="number of learning processes to build instead of rounds")
    parser.add_argument("--set", action="append", default=[], help="overrides of the recipe")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def over_rounds(recipe, rounds):
    """MiB after every twentieth of the rounds, and the number of traces of the round."""
    from hetero_tf import learning_process

    process = learning_process(recipe)
    state, seen = process.initialize(), {}
    for _ in range(rounds):
        state, _ = process.next(state)
        process.evaluate(state)
        if state.round % max(rounds // 20, 1) == 0:
            seen[state.round] = resident_mib()
    return seen, process.runner.compiled_round.experimental_get_tracing_count()


def over_processes(recipe, processes):
    """MiB after every twentieth of the learning processes, and the number of traces of their rounds, once each."""
    from hetero_tf import learning_process

    seen = {}
    for number in range(1, processes + 1):
        process = learning_process(recipe)
        process.next(process.initialize())
        del process
        gc.collect()
        if number % max(processes // 20, 1) == 0:
            seen[number] = resident_mib()
    return seen, processes


def main():
    """Prints memory twenty times, and its growth since the first value."""
    args = arguments()
    hardware.import_quietly()
    hardware.configure_threads(hardware.core_count())
    from hetero_tf import load_recipe

    recipe = load_recipe(args.recipe, args.set)
    unit = "process" if args.processes else "round"
    seen, traces = over_processes(recipe, args.processes) if args.processes else over_rounds(recipe, args.rounds)
    (since, first), *_, (_, last) = seen.items()
    growth = 100 * (last - first) / first
    if args.json:
        print(json.dumps({"resident_mib": seen, "growth_percent": growth, "traces": traces}))
        return
    for number, megabytes in seen.items():
        print(f"{unit} {number:6}  {megabytes:8.1f} MiB")
    print(f"growth since {unit} {since}: {last - first:.1f} MiB, {growth:.1f} %, traces {traces}")


if __name__ == "__main__":
    main()
