#!/usr/bin/env python3
"""Follows the resident memory of a run over many rounds, each planned, trained and measured, and counts traces.

benchmarks/memory.py --recipe tiny/digits --rounds 1000 [--set levels.mix=a-b-c-d-e] [--json]
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hetero_tf.base import hardware  # noqa: E402


def resident_mb():
    """Resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main():
    """Runs the rounds and prints memory twenty times, and the growth since a twentieth of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tiny/digits")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--set", action="append", default=[], help="overrides of the recipe")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    hardware.import_quietly()
    hardware.prepare(hardware.cores())
    from hetero_tf import learning_process, load_recipe

    process = learning_process(load_recipe(args.recipe, args.set))
    state, seen = process.initialize(), {}
    every = max(args.rounds // 20, 1)
    for _ in range(args.rounds):
        state, _ = process.next(state)
        process.evaluate(state)
        if state.round % every == 0:
            seen[state.round] = resident_mb()
    first, last = seen[every], seen[max(seen)]
    growth = 100 * (last - first) / first
    traces = process._round.experimental_get_tracing_count()
    if args.json:
        print(json.dumps({"resident_mb": seen, "growth_percent": growth, "traces": traces}))
        return
    for round, megabytes in seen.items():
        print(f"round {round:6}  {megabytes:8.1f} MiB")
    print(f"growth since round {every}: {growth:.1f} %, traces {traces}")


if __name__ == "__main__":
    main()
