#!/usr/bin/env python3
"""Times the compiled round of a recipe, and the matmul peak of the same process.

    benchmarks/round.py --recipe mnist --levels a-e [--repeats 3] [--epochs 1] [--json]

The cohort has equal numbers of clients of each level. Cut and merge are timed by a round without steps, evaluation
separately. Times are medians; run it on a quiet machine and compare ratios within one run, not seconds of two runs.
"""

import argparse
import functools
import itertools
import json
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware

# Settings of rounds that are compared with those that wait for all clients.
FLEET, IMMEDIATE = "fleet=phones", ("round.policy=immediate", "round.server={name: sgd, learning_rate: 0.5}")
POLICIES = {
    "wait for 3": ("round.clients=3",),
    "wait for 1": ("round.clients=1",),
    "buffered, size 10": (FLEET, "round.policy={name: buffered, size: 10}"),
    "buffered, size 3": (FLEET, "round.policy={name: buffered, size: 3}"),
    "immediate": (FLEET, *IMMEDIATE),
    "immediate, sequential": (FLEET, *IMMEDIATE, "engine=sequential"),
}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--levels", default="a", help="a, e, a-e, a-b-c-d-e...: levels in equal numbers")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds after the first")
    parser.add_argument("--epochs", type=int, help="local epochs, to shorten wide levels")
    parser.add_argument("--steps", type=int, help="maximum number of steps of each client")
    parser.add_argument("--engine", choices=("auto", "sequential", "stacked"))
    parser.add_argument("--set", action="append", default=[], help="further overrides of the recipe")
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--threads", type=int, default=hardware.core_count())
    parser.add_argument("--evaluate", action="store_true", help="also time the statistics query and the test")
    parser.add_argument("--live", action="store_true", help="also time rounds with a progress display")
    parser.add_argument("--model", action="store_true", help="also time the same layers, passed as a Python function")
    parser.add_argument(
        "--policies", action="store_true", help="also time rounds of asynchronous policies, and few clients"
    )
    parser.add_argument(
        "--command", action="store_true", help="also time the rounds of bin/hetero_tf, in turns with these"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser.parse_args()


def timed(work):
    """Seconds of `work()`, and its result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def peak_flops(threads, size=2048, repeats=5):
    """Float32 operations per second of `threads` matrix products at once, the best of some runs."""
    import tensorflow as tf

    @tf.function
    def products(values):
        return [tf.matmul(value, value) for value in values]

    values = [tf.random.normal([size, size]) for _ in range(threads)]
    seconds = min(timed(lambda: products(values)[-1].numpy())[0] for _ in range(repeats))
    return threads * 2 * size**3 / seconds


def balanced_cohort(process):
    """Ids of equal numbers of clients of each level of the mix, as many as fit into a cohort."""
    import numpy as np

    from hetero_tf.planning import plan

    recipe = process.recipe
    registered = len(process.partition.train)
    levels = plan.assign_levels(recipe.levels, registered, recipe.seed, 0, np.arange(registered))
    share = recipe.round.clients // len(recipe.levels.names)
    return np.concatenate([np.flatnonzero(levels == level)[:share] for level in range(len(recipe.levels.names))])


def shortened(plan, steps):
    """The plan with at most `steps` steps of each client."""
    import dataclasses

    import numpy as np

    return dataclasses.replace(
        plan,
        steps=np.minimum(plan.steps, steps),
        rows=plan.rows[:, :steps],
        starts=plan.starts[:, :steps],
        stages=plan.stages[:, :steps],
    )


def measure(args):
    """All printed values, as a dict."""
    hardware.import_quietly()
    hardware.configure_threads(args.threads)
    from hetero_tf import recipe
    from hetero_tf.run import experiment

    overrides = [f"levels.mix={args.levels}", "levels.assignment=fixed", *args.set]
    overrides += [f"client.epochs={args.epochs}"] if args.epochs else []
    overrides += [f"engine={args.engine}"] if args.engine else []
    settings = experiment.Settings(Path("unused"), args.data_dir, args.threads, False, "")

    def build(*others):
        return experiment.build_process(recipe.load(args.recipe, [*overrides, *others]), settings)

    set_up, process = timed(build)
    loaded = process.recipe
    plan = process.plan(0, balanced_cohort(process))
    plan = shortened(plan, args.steps) if args.steps else plan
    state = process.initialize()
    trace, _ = timed(process.runner.compiled_round.get_concrete_function)
    first, _ = timed(lambda: process.run(state, [plan]))
    began = time.process_time()
    seconds = median(args.repeats, lambda: process.run(state, [plan]))
    core_seconds = (time.process_time() - began) / args.repeats
    idle = shortened(plan, 0)
    merge = median(args.repeats, lambda: process.run(state, [idle]), warm=True)
    steps, examples = int(plan.steps.sum()), process.runner.count_examples(plan).sum()
    peak = peak_flops(args.threads)
    result = {
        "recipe": loaded.name,
        "levels": args.levels,
        "data": process.dataset.source.split(" (")[0],
        "threads": args.threads,
        "precision": loaded.precision,
        "at_once": process.engine_report()["clients_at_once"],
        "steps": steps,
        "set_up_s": set_up,
        "trace_s": trace,
        "first_round_s": first,
        "plan_ms": 1000 * median(args.repeats, lambda: process.plan(1)),
        "round_s": seconds,
        "ms_per_step": 1000 * seconds / steps,
        "core_ms_per_step": 1000 * core_seconds / steps,
        "examples_per_s": float(examples / seconds),
        "peak_gflops": peak / 1e9,
        "share_of_peak": training_flops(process, plan) / seconds / peak,
        "cut_and_merge_ms": 1000 * merge,
    }
    if args.evaluate:
        result["evaluate_first_s"] = timed(lambda: process.evaluate(state))[0]
        result["statistics_s"] = median(args.repeats, lambda: process.statistics(state))
        result["test_s"] = median(args.repeats, lambda: process.evaluate(state)) - result["statistics_s"]
    if args.live:
        result["live_share"] = live_share(args.repeats, process, state, plan)
    if args.model:
        result |= model_ratio(args, process, state, plan)
    if args.policies:
        result["of_wait"] = policy_ratios(args, process, {name: build(*others) for name, others in POLICIES.items()})
    if args.command:
        result["command_ratio"] = command_ratio(args, process, overrides)
    result["traces"] = process.runner.compiled_round.experimental_get_tracing_count()
    result["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def live_share(repeats, process, state, plan):
    """Share that the progress display adds to the time of a round; the median over alternating pairs of rounds."""
    watched = process.with_progress(lambda steps, clients: None)
    watched.run(state, [plan])
    return median_ratio(repeats, lambda: watched.run(state, [plan]), lambda: process.run(state, [plan])) - 1


def model_ratio(args, process, state, plan):
    """The time of a round with the recipe's layers as a custom model, relative to that of the recipe.

    The clients of a custom model are computed one by one. The ratio is the median over alternating pairs of rounds.
    """
    import numpy as np

    from hetero_tf.models.build_model import build_model
    from hetero_tf.run.learning_process import learning_process

    model, shape = process.recipe.model, process.family.shape
    custom = learning_process(
        process.recipe,
        process.dataset,
        process.partition,
        parallel=args.threads,
        model=lambda width, classes, scale=1.0: build_model(model, shape, width, scale, classes),
    )
    begun = custom.begin(dict(state.weights))
    weights = [each.run(start, [plan])[0].weights for each, start in ((custom, begun), (process, state))]
    largest = max(float(np.abs(one - other).max()) for one, other in zip(*(each.values() for each in weights)))
    ratio = median_ratio(args.repeats, lambda: custom.run(begun, [plan]), lambda: process.run(state, [plan]))
    return {"model_ratio": ratio, "model_largest_difference": largest}


def policy_ratios(args, process, others):
    """The time of a client step in rounds of `others`, relative to that of `process`; medians over turns of all."""
    rounds = {name: rounds_of(args, each) for name, each in {"wait": process, **others}.items()}
    turns = [{name: next(each) for name, each in rounds.items()} for _ in range(args.repeats + 1)]
    # The first turn includes traces.
    return {name: statistics.median(turn[name] / turn["wait"] for turn in turns[1:]) for name in others}


def command_ratio(args, process, overrides):
    """The time of a client step in the command, relative to that of the same rounds in this process.

    The median over turns of the medians of five rounds. Those of the command include its display, its rows and the
    effects of its evaluations and checkpoints on the next round, but not their time. The settings are the recipe's.
    """
    rounds = 6
    overrides = [*overrides, f"rounds={rounds}"]
    words = ["--recipe", args.recipe, f"--threads={args.threads}", *(f"--set={each}" for each in overrides)]
    words += [f"--data_dir={args.data_dir}"] if args.data_dir else []

    def of_command():
        with tempfile.TemporaryDirectory() as folder:
            program = [checkout.ROOT / "bin" / "hetero_tf", *words, "--run_dir", f"{folder}/run"]
            subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
            rows = [json.loads(line) for line in Path(folder, "run", "timings.jsonl").read_text().splitlines()]
        return statistics.median(row["training_seconds"] / row["steps"] for row in rows[1:])

    def of_rounds():
        state, seconds = process.initialize(), []
        for number in range(rounds):
            plan = process.plan(number)
            taken, (state, _) = timed(functools.partial(process.run, state, [plan]))
            seconds.append(taken / int(plan.steps.sum()))
        return statistics.median(seconds[1:])

    return statistics.median(of_command() / of_rounds() for _ in range(args.repeats))


def rounds_of(args, process):
    """Yields seconds per client step of consecutive rounds, each time of as many as start about ten clients."""
    state, plans = process.initialize(), map(process.plan, itertools.count())
    while True:
        taken = []
        while sum(len(plan.clients) for plan in taken) < 10:
            plan = next(plans)
            taken.append(shortened(plan, args.steps) if args.steps else plan)
        began = time.perf_counter()
        for plan in taken:
            state, _ = process.run(state, [plan])
        yield (time.perf_counter() - began) / sum(int(plan.steps.sum()) for plan in taken)


def median_ratio(repeats, work, other):
    """The median ratio of the seconds of `work()` to those of `other()`, over alternating pairs."""
    return statistics.median(timed(work)[0] / timed(other)[0] for _ in range(repeats))


def median(repeats, work, warm=False):
    """The median of the seconds of some runs of `work()`; `warm`: after one untimed run."""
    if warm:
        work()
    return statistics.median(timed(work)[0] for _ in range(repeats))


def training_flops(process, plan):
    """Operations of forward and backward pass of a plan: three times the forward products, two operations each."""
    from hetero_tf.models.costs.counting import forward, total

    example, label_axis = process.example_shape, process.setup.examples.present.shape[1]
    models = [process.family.new_training_model(level, label_axis) for level in process.family.submodels]
    costs = [total(forward(model, example)).multiply_adds for model in models]
    # Products of text are counted for a full segment.
    size = 1 if len(example) == 3 else example[0]
    return sum(
        6 * costs[process.family.submodel_of[level]] * examples / size
        for level, examples in zip(plan.levels, process.runner.count_examples(plan))
    )


def main():
    """Measures and prints."""
    args = parse()
    result = measure(args)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:18} {value if not isinstance(value, float) else format(value, ',.3f')}")


if __name__ == "__main__":
    main()
