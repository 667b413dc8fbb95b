#!/usr/bin/env python3
"""Times the start of a recipe up to its second round: building models, tracing the round, and its first call.

    benchmarks/first_round.py cifar10 methods/depthfl [--set levels.mix=a-e] [--json]

Every client of the round trains for one step, so graph construction dominates the time. Each recipe runs in a separate
process, whose peak memory is printed, of all and up to the end of tracing.
"""

import argparse
import json
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
from round import shortened, timed

from hetero_tf.base import hardware

COLUMNS = ("build_s", "trace_s", "first_call_s", "all_s", "nodes", "traced_mib", "peak_mib")
SHOWN = {float: ",.1f", int: ","}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="+", help="shipped names or files")
    parser.add_argument("--set", action="append", default=[], help="overrides of the recipes")
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--threads", type=int, default=hardware.core_count())
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser.parse_args()


def measure(args, name):
    """The numbers of one recipe."""
    hardware.import_quietly()
    hardware.configure_threads(args.threads)
    from hetero_tf import learning_process, load_recipe

    recipe = load_recipe(name, args.set)
    build, process = timed(lambda: learning_process(recipe, data_dir=args.data_dir, parallel=args.threads))
    plan = shortened(process.plan(0), 1)
    state = process.initialize()
    trace, function = timed(process.runner.compiled_round.get_concrete_function)
    traced = peak_mib()
    call, _ = timed(lambda: process.run(state, [plan]))
    graph = function.graph.as_graph_def()
    nodes = len(graph.node) + sum(len(inner.node_def) for inner in graph.library.function)
    values = build, trace, call, build + trace + call, nodes, traced, peak_mib()
    return dict(zip(COLUMNS, values, strict=True))


def peak_mib():
    """Peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows(args):
    """Yield each recipe's name and numbers; None if its process was killed."""
    # Forked processes would share TensorFlow's threads with this one.
    context = multiprocessing.get_context("spawn")
    for name in args.recipe:
        with ProcessPoolExecutor(1, context) as pool:
            try:
                yield name, pool.submit(measure, args, name).result()
            except BrokenProcessPool:
                yield name, None


def main():
    """Measures and prints."""
    args = parse()
    if args.json:
        print(json.dumps({"threads": args.threads, "recipes": dict(rows(args))}))
        return
    print(f"{'recipe':28}" + "".join(f"{name:>13}" for name in COLUMNS))
    for name, measurements in rows(args):
        values = (
            ["killed"]
            if measurements is None
            else [format(value, SHOWN[type(value)]) for value in measurements.values()]
        )
        print(f"{name:28}" + "".join(f"{value:>13}" for value in values), flush=True)


if __name__ == "__main__":
    main()
