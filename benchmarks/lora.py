#!/usr/bin/env python3
"""Fine-tunes one base with low-rank adapters under several rules for clients of different ranks, and prints a table.

    benchmarks/lora.py DIR [--seeds 0 1 2] [--rounds 6] [--variants holders zeros ...] [--data_dir DIR]

The base is the Transformer of recipes/wikitext2.yaml, reduced for two cores, after some rounds of FedAvg of the full
model. Then the base is frozen, and equal numbers of clients with ranks 8, 2 and 1 train adapters
(recipes/wikitext2_lora.yaml). DIR receives the weights of the base (`base.npz`) and a JSON file for each run; finished
runs are skipped.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np

from hetero_tf import recipe
from hetero_tf.run.learning_process import learning_process

SMALL = [
    # The real text with its most frequent words: a softmax over all words would take most of the time.
    "data={name: text, train: wikitext-2/train.txt.gz, test: wikitext-2/test.txt.gz, vocabulary: 2000, rows: 480}",
    "partition.clients=120",
    "round={clients: 6, label_rows: all}",
    "client={batch_size: 4, loss: cross_entropy}",
    "model.settings.blocks=2",
    "model.settings.heads=4",
]
WIDTHS = {"width": 64, "head_width": 16, "hidden": 128}
BASE = ["levels.mix=a", "levels.assignment=fixed", *(f"model.settings.{name}=!w {n}" for name, n in WIDTHS.items())]
ADAPTED = ["optimizer.learning_rate=0.01", *(f"model.settings.{name}={n}" for name, n in WIDTHS.items())]
VARIANTS = {
    "holders": [],
    "zeros": ["round.uncovered=zeros"],
    **{rule: [f"round.adapters={rule}"] for rule in ("products", "ffa", "rolora", "flora", "flexlora")},
    "rank 8 alone": ["levels.idle=[c, e]"],
    "rank 1 for all": ["levels.mix=e"],
}


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the base and the results")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=6, help="rounds of fine-tuning")
    parser.add_argument("--base_rounds", type=int, default=6, help="rounds of FedAvg for the base")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--set", action="append", default=[], help="further overrides of all fine-tuning")
    parser.add_argument("--data_dir", help="folder of the data, see README")
    return parser.parse_args()


def trained(name, overrides, rounds, data_dir):
    """Runs the rounds of a recipe; returns the final state and its metrics."""
    process = learning_process(recipe.load(name, overrides), data_dir=data_dir)
    state, sent = process.initialize(), 0
    process.runner.prepare()
    start = time.perf_counter()
    for number in range(rounds):
        state, row = process.next(state)
        sent += row["bytes_down"] + row["bytes_up"]
        print(
            f"round {number + 1}: loss {row['loss']:.3f}, {time.perf_counter() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    seconds = time.perf_counter() - start
    metrics, _ = process.evaluate(state)
    return state, {
        "perplexity": metrics["global_perplexity"],
        "seconds": seconds,
        "megabytes": sent / 1e6,
        "levels": row["levels"],
    }


def base(args):
    """The file of the base's weights, and its metrics; trains the base if the file is missing."""
    path, metrics_file = args.folder / "base.npz", args.folder / "base.json"
    if not metrics_file.exists():
        args.folder.mkdir(parents=True, exist_ok=True)
        state, metrics = trained("wikitext2", [*SMALL, *BASE], args.base_rounds, args.data_dir)
        np.savez(path, **{name: np.asarray(value) for name, value in state.weights.items()})
        metrics_file.write_text(json.dumps(metrics))
    return path, json.loads(metrics_file.read_text())


def main():
    """Trains the missing runs and prints the table."""
    args = parse()
    path, base_metrics = base(args)
    print(f"base: {base_metrics}", file=sys.stderr, flush=True)
    rows = {}
    for seed in args.seeds:
        for variant in args.variants:
            result_file = args.folder / f"{variant.replace(' ', '_')}-{seed}.json"
            if not result_file.exists():
                overrides = [
                    *SMALL,
                    *ADAPTED,
                    f"model.initial_weights={path}",
                    f"seed={seed}",
                    *VARIANTS[variant],
                    *args.set,
                ]
                _, result = trained("wikitext2_lora", overrides, args.rounds, args.data_dir)
                result_file.write_text(json.dumps(result))
            rows.setdefault(variant, []).append(json.loads(result_file.read_text()))
            print(f"{variant}, seed {seed}: {rows[variant][-1]}", file=sys.stderr, flush=True)
    print("| ranks and merge | perplexity | from | to | seconds of a run | MB of a run |\n| --- " + "| --- " * 5 + "|")
    print(
        f"| the base | {base_metrics['perplexity']:.3f} | | | {base_metrics['seconds']:.0f} "
        f"| {base_metrics['megabytes']:.0f} |"
    )
    for variant, results in rows.items():
        values = [result["perplexity"] for result in results]
        spent = [np.mean([result[name] for result in results]) for name in ("seconds", "megabytes")]
        print(
            f"| {variant} | {np.mean(values):.3f} | {min(values):.3f} | {max(values):.3f} "
            f"| {spent[0]:.0f} | {spent[1]:.1f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
