#!/usr/bin/env python3
"""Runs several methods on the same data, clients and budgets with several seeds, and tabulates them.

    benchmarks/methods.py DIR --data mnist [--methods heterofl fedepth ...] [--seeds 0 1 2] [--jobs 2]

The methods are the recipes of recipes/methods, made small enough for two cores in minutes: a PreResNet-20 of 4, 8 and
16 channels whose stem halves the image, short runs. Each run has a folder below DIR and is resumed or skipped if it is
there; at the end `benchmarks/compare.py` prints the table. `--set` changes all runs alike. LG-FedAvg starts from the
best state of the run of FedAvg with the same seed, as its protocol has it, so that run comes first.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checkout import ROOT

from hetero_tf.base import hardware

SMALL = [
    "model.settings.channels=[!w 4, !w 8, !w 16]",
    "model.settings.stem_stride=2",
    "client.epochs=2",
    "client.batch_size=50",
    "evaluate.statistics_batch=50",
    "evaluate.batch_size=500",
    "evaluate.every=10",
    "rounds=30",
    "schedule.rounds=30",
]
# What a method starts from.
STARTS = {"lg_fedavg": "fedavg"}
DATA = {
    # Two labels for each client, as HeteroFL's non-IID split.
    "mnist": [
        "data.dataset=mnist",
        "input={name: images, mean: [0.1307], std: [0.3081]}",
        "partition={name: labels, clients: 100, per_client: 2}",
    ],
    "cifar10": ["partition={name: dirichlet, clients: 100, alpha: 0.3}"],
}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs are kept")
    parser.add_argument("--data", choices=sorted(DATA), default="mnist")
    parser.add_argument("--methods", nargs="+", default=methods(), help="recipes of recipes/methods")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], help="further overrides of all recipes")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once; they share the cores")
    parser.add_argument("--data_dir", help="folder of the data, see README")
    return parser.parse_args()


def methods():
    """The names of all recipes of methods."""
    return sorted(path.stem for path in (ROOT / "recipes/methods").glob("*.yaml"))


def command(args, method, seed, folder):
    """The command line of one run."""
    overrides = [*SMALL, *DATA[args.data], f"name={method}", f"seed={seed}", *args.set]
    if method in STARTS:
        overrides.append(f"model.initial_weights={folder.with_name(f'{STARTS[method]}-{seed}')}")
    given = [f"--set={override}" for override in overrides] + ([f"--data_dir={args.data_dir}"] if args.data_dir else [])
    return [
        sys.executable,
        "-m",
        "hetero_tf",
        f"--recipe={ROOT}/recipes/methods/{method}.yaml",
        f"--run_dir={folder}",
        f"--threads={max(hardware.cores() // args.jobs, 1)}",
        *given,
    ]


def run(args, method, seed):
    """Does one run, or what is missing of it; its folder, None if it failed."""
    folder = args.folder / args.data / f"{method}-{seed}"
    print(f"{method}, seed {seed}", file=sys.stderr, flush=True)
    done = subprocess.run(command(args, method, seed, folder), cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        print(f"failed: {method}, seed {seed}", file=sys.stderr, flush=True)
    return None if done.returncode else str(folder)


def run_all(args, chosen):
    """Does the runs of the chosen methods with all seeds; their folders, as `run` gives them."""
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(run, args, method, seed) for seed in args.seeds for method in chosen]
        return [done.result() for done in waiting]


def main():
    """Runs what is missing and prints the table; the exit code."""
    args = parse()
    first = dict.fromkeys(STARTS.get(method, method) for method in args.methods)
    folders = run_all(args, first) + run_all(args, [method for method in args.methods if method in STARTS])
    compared = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks/compare.py"),
            *filter(None, folders),
            "--metric",
            "global_accuracy",
            "local_accuracy",
            "local_worst_decile",
        ],
        check=False,
    )
    return compared.returncode or int(None in folders)


if __name__ == "__main__":
    sys.exit(main())
