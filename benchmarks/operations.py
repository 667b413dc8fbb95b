#!/usr/bin/env python3
"""Profiles a client's step: processor time of each kind of operation.

    benchmarks/operations.py --recipe mnist --levels e --steps 50 [--engine sequential] [--json]

The round runs one block of clients at a time, so operations do not disturb each other. Time outside of operations is
TensorFlow's work between them. It reads TensorFlow's profile (a private format, written for 2.21).
"""

import argparse
import collections
import dataclasses
import json
import tempfile
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
from round import balanced_cohort, shortened, timed

from hetero_tf.base import hardware


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--levels", default="a")
    parser.add_argument("--steps", type=int, default=50, help="maximum number of steps of each client")
    parser.add_argument("--engine", choices=("auto", "sequential", "stacked"), default="auto")
    parser.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--rows", type=int, default=15, help="operations to print")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def measure(args):
    """Milliseconds of a step, in total and by operation."""
    import tensorflow as tf

    from hetero_tf import data, learning_process, recipe
    from hetero_tf.base.replicas import Replicas

    loaded = recipe.load(
        args.recipe, [f"levels.mix={args.levels}", "levels.assignment=fixed", f"engine={args.engine}", *args.set]
    )
    dataset = data.load(loaded.data.loader, loaded.data.fallback, args.data_dir)
    # The engine is selected for all cores; the measurement uses one of them.
    process = learning_process(loaded, dataset=dataset, parallel=hardware.core_count())
    engine = dataclasses.replace(process.setup.engine, replicas=Replicas(1))
    process = dataclasses.replace(process, setup=dataclasses.replace(process.setup, engine=engine))
    plan = shortened(process.plan(0, balanced_cohort(process)), args.steps)
    state, steps = process.initialize(), int(plan.steps.sum())
    process.run(state, [plan])
    seconds, _ = timed(lambda: process.run(state, [plan]))
    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            process.run(state, [plan])
        spent, calls = operations(Path(folder))
    summary = {
        "recipe": loaded.name,
        "levels": args.levels,
        "at_once": process.engine_report()["clients_at_once"],
        "ms_per_step": 1000 * seconds / steps,
    }
    rows = [
        {"operation": name, "ms_per_step": value / steps, "calls_per_step": calls[name] / steps}
        for name, value in spent.most_common()
    ]
    return {**summary, "in_operations": sum(row["ms_per_step"] for row in rows), "operations": rows}


def operations(folder):
    """Milliseconds and calls of every kind of operation in a profile."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space, spent, calls = xplane_pb2.XSpace(), collections.Counter(), collections.Counter()
    for path in folder.rglob("*.xplane.pb"):
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for event in (event for line in plane.lines for event in line.events):
                # Operations are named "node:kind"; enclosing events have no kind.
                node, colon, kind = plane.event_metadata[event.metadata_id].name.rpartition(":")
                if colon and "/" in node:
                    spent[kind.removeprefix("_Mkl").removeprefix("Native")] += event.duration_ps / 1e9
                    calls[kind.removeprefix("_Mkl").removeprefix("Native")] += 1
    return spent, calls


def main():
    """Measures and prints."""
    args = parse()
    hardware.import_quietly()
    hardware.configure_threads(1)
    result = measure(args)
    if args.json:
        print(json.dumps(result))
        return
    print(
        f"{result['recipe']} {result['levels']} {result['at_once']}: {result['ms_per_step']:.3f} ms of one core per "
        f"step, {result['in_operations']:.3f} in operations (profiled)"
    )
    for row in result["operations"][: args.rows]:
        print(f"{row['ms_per_step']:9.4f} ms {row['calls_per_step']:7.2f} calls  {row['operation']}")


if __name__ == "__main__":
    main()
