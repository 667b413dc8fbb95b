#!/usr/bin/env python3
"""Cost of a round against registered clients, active clients and width, on generated 4 x 4 images.

    benchmarks/scaling.py [--population 100 10000 1000000] [--active 10 20 100] [--levels a c e] [--json]

Every combination runs in a separate process, so its memory is measured separately. All clients have the same number of
examples. Times are medians. A larger population should cost set-up time and memory for its ids, labels and images, and
nothing in a round. "fleet_bytes" are those that the fleet stores for each registered client: its level with
`--set levels.fit=device`, and its device in a trace.

    benchmarks/scaling.py --plan [--recipes mnist cifar10 wikitext2] [--gigabits 10] [--workers 16] [--server_gb 64]

extrapolates to large deployments: traffic, memory, merge and planning of a server with 10 thousand to 100 million
registered clients, from the measured cost of one client. "tree s" is the time of link and merge if an aggregation tree
of workers with separate links shares them. "first" is the part that takes longest, or memory if that does not fit.

    benchmarks/scaling.py --growth ["classes" "words" ...]

prints how time and memory grow with one size after the other, with the exponents between the two largest sizes: 1 is
linear, and `!` marks what grows faster.
"""

import argparse
import itertools
import json
import multiprocessing
import statistics

import checkout  # noqa: F401  finds hetero_tf and its libraries
from memory import resident_mib
from round import timed

from hetero_tf.base import hardware

SIZE, CLASSES = 4, 10
COLUMNS = (
    "population",
    "active",
    "levels",
    "set_up_s",
    "first_round_s",
    "plan_ms",
    "fleet_bytes",
    "round_s",
    "steps",
    "ms_per_step",
    "rss_mib",
)


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--population", type=int, nargs="+", default=[100, 10000, 1000000], help="registered clients")
    parser.add_argument("--active", type=int, nargs="+", default=[10, 20, 100], help="clients of a round")
    parser.add_argument("--levels", nargs="+", default=["a", "c", "e"], help="mixes: a, e, a-e, a-b-c-d-e...")
    parser.add_argument("--recipe", default="digits", help="recipe of the model and the training")
    parser.add_argument("--examples", type=int, default=2, help="training images of each client")
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds after the first")
    parser.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    parser.add_argument("--threads", type=int, default=hardware.core_count())
    parser.add_argument("--plan", action="store_true", help="compute the cost of large populations instead")
    parser.add_argument("--growth", nargs="*", metavar="SIZE", help="print the growth with these sizes; none: all")
    parser.add_argument("--recipes", nargs="+", default=["mnist", "cifar10", "wikitext2", "methods/lg_fedavg"])
    parser.add_argument("--gigabits", type=float, default=10, help="gigabits per second of the server's link")
    parser.add_argument("--workers", type=int, default=16, help="workers of an aggregation tree")
    parser.add_argument("--server_gb", type=float, default=64, help="memory of the server")
    parser.add_argument("--data_dir", help="folder of the data")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser.parse_args()


def images(examples):
    """A `Dataset` of noise with this number of training images."""
    import numpy as np

    from hetero_tf.data.codecs import picture
    from hetero_tf.data.dataset import Dataset, Split

    def split(count, seed):
        x = np.random.default_rng(seed).integers(0, 256, (count, SIZE, SIZE, 1), np.uint8)
        return Split(x, np.arange(count, dtype=np.int32) % CLASSES)

    train = split(examples, 0)
    return Dataset(train, split(CLASSES, 1), (picture.field(train.x),), CLASSES, "noise")


def measure(args, population, active, levels):
    """One row of the table, as a dict."""
    hardware.import_quietly()
    from hetero_tf import learning_process, load_recipe

    recipe = load_recipe(
        args.recipe,
        [
            f"partition={{name: iid, clients: {population}}}",
            f"round.clients={active}",
            f"levels.mix={levels}",
            "levels.assignment=dynamic",
            *args.set,
        ],
    )
    dataset = images(population * args.examples)
    set_up, process = timed(lambda: learning_process(recipe, dataset=dataset, parallel=args.threads))
    state = process.initialize()
    first, (state, _) = timed(lambda: process.next(state))
    planning, rounds, steps = [], [], []
    for number in range(1, args.repeats + 1):
        seconds, plan = timed(lambda number=number: process.plan(number))
        planning.append(seconds)
        seconds, (state, _) = timed(lambda plan=plan, state=state: process.run(state, [plan]))
        rounds.append(seconds)
        steps.append(int(plan.steps.sum()))
    seconds, steps = statistics.median(rounds), statistics.median(steps)
    values = (
        population,
        active,
        levels,
        set_up,
        first,
        1000 * statistics.median(planning),
        fleet_bytes(process),
        seconds,
        steps,
        1000 * seconds / steps,
        resident_mib(),
    )
    return dict(zip(COLUMNS, values, strict=True))


def fleet_bytes(process):
    """Bytes that the fleet stores for each registered client."""
    from hetero_tf.planning.fleets.device_table import device_table

    recipe = process.recipe
    kinds = None if recipe.fleet is None else device_table(recipe.fleet).kinds
    arrays = [array for array in (recipe.levels.level_of_client, kinds) if array is not None]
    return sum(array.nbytes for array in arrays) / len(process.partition.train)


def rows(args):
    """Yield the row of each combination when it is measured."""
    # Forked processes would share TensorFlow's threads with this one.
    context = multiprocessing.get_context("spawn")
    for population, active, levels in itertools.product(args.population, args.active, args.levels):
        if active <= population:
            with context.Pool(1) as pool:
                yield pool.apply(measure, (args, population, active, levels))


def plan(args):
    """The table of --plan, and the processor on which a client was measured."""
    hardware.import_quietly()
    import scaling_plan

    from hetero_tf import learning_process, load_recipe

    processes = {name: learning_process(load_recipe(name), data_dir=args.data_dir) for name in args.recipes}
    clients = {name: scaling_plan.one_client(process) for name, process in processes.items()}
    rows = scaling_plan.table(clients, args.gigabits, args.workers, args.server_gb * 1e9)
    about = f"one client measured on {processor()}; {args.gigabits:g} Gbit/s, {args.workers} workers in the tree"
    return f"{about}\n\n{scaling_plan.to_text(rows)}"


def processor():
    """The name of this machine's processor."""
    from pathlib import Path

    from hetero_tf.runs import environment

    return environment.processor(Path("/proc/cpuinfo"))[0]


def main():
    """Measures and prints."""
    args = parse()
    if args.plan:
        print(plan(args))
        return
    if args.growth is not None:
        import scaling_growth

        print(f"{args.threads} threads on {processor()}")
        for line in scaling_growth.table(args.threads, args.growth or scaling_growth.AXES):
            print(line, flush=True)
        return
    if args.json:
        print(
            json.dumps(
                {"recipe": args.recipe, "threads": args.threads, "examples": args.examples, "rows": list(rows(args))}
            )
        )
        return
    print("".join(f"{name:>14}" for name in COLUMNS))
    for row in rows(args):
        print(
            "".join(f"{format(value, ',.2f') if isinstance(value, float) else value:>14}" for value in row.values()),
            flush=True,
        )


if __name__ == "__main__":
    main()
