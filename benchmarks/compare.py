#!/usr/bin/env python3
"""Compares runs: a Markdown table with the mean and the spread over seeds of what they reached and what it cost.

    benchmarks/compare.py runs/* [--metric global_accuracy local_worst_decile] [--target 95] [--at 10 20] [--json]

Runs whose recipes differ in nothing but the seed are one row; `--set name=NAME` gives a row its name. Spreads are
standard deviations over seeds (divided by one less than their number). "last" is the last round that was measured;
"best" is the round with the best value on the held-out examples where the run has some, else the best one on the test
set, which flatters. The target is one of the first metric; so are the values at the rounds of `--at`, its curve.
Without `--metric` runs that measured the model of every level show the accuracy of each level too.
"""

import argparse
import json
import os
import statistics
import sys
from dataclasses import dataclass

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware
from hetero_tf.base.console import printable
from hetero_tf.base.errors import BadInput, Refusal
from hetero_tf.base.metrics import find, renamed
from hetero_tf.base.registry import register_plugin
from hetero_tf.recipe import loads
from hetero_tf.store import metrics
from hetero_tf.store.run_folder import RunFolder

# Where a run has one of them, it says which round is the best one.
CHOOSERS = ("validation_accuracy", "validation_perplexity")
# Heads of the columns, and what their values are divided by.
HEADS = {
    "bytes": "MB",
    "client_bytes": "MB a client and round",
    "train_flops": "TFLOP",
    "client_seconds": "s a client and round",
    "target_round": "rounds to target",
    "target_bytes": "MB to target",
}
UNITS = {"bytes": 1e6, "client_bytes": 1e6, "target_bytes": 1e6, "train_flops": 1e12}


@dataclass(frozen=True)
class Run:
    """One run folder.

    Attributes:
        folder: Its path, as given.
        recipe: `recipe.schema.Recipe`.
        alike: The text of the recipe without its seed.
        rows: Its metrics.
        timings: How long its calls took; none of runs of earlier versions.
    """

    folder: str
    recipe: object
    alike: str
    rows: list
    timings: list


def parse(arguments=None):
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", help="run folders")
    parser.add_argument("--metric", nargs="+", help="default: global_accuracy, and that of each level")
    parser.add_argument("--target", type=float, help="value of the first metric that is to be reached")
    parser.add_argument("--at", type=int, nargs="+", default=[], help="rounds at which to show the first metric")
    parser.add_argument("--plugin", action="append", default=[], help="own Python module that the runs need")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser.parse_args(arguments)


def read(folder):
    """The `Run` in a folder.

    Raises:
        BadInput: It holds no run, or one without a measured round.
    """
    place = RunFolder(folder)
    loaded = loads(place.read_recipe(), str(place.recipe))
    # Old runs can still be compared.
    rows = [renamed(row) for row in metrics.rows(place.metrics)]
    if not rows:
        raise BadInput(f"{folder}: has no finished round yet. Received: an empty or missing {place.metrics.name}")
    alike = "\n".join(line for line in loaded.source.splitlines() if not line.startswith("seed:"))
    return Run(str(folder), loaded, alike, rows, metrics.rows(place.timings))


def grouped(runs):
    """Runs that differ in their seed only, as `{name: [Run]}` in the order given.

    Raises:
        BadInput: Two of them have one seed, so that they are one run twice.
    """
    groups = {}
    for run in runs:
        same = groups.setdefault(run.alike, [])
        for other in same:
            if other.recipe.seed == run.recipe.seed:
                raise BadInput(
                    f"{run.folder} and {other.folder} are the same recipe with the same seed, so their "
                    f"spread would say nothing; name one of them. Received: seed={run.recipe.seed}"
                )
        same.append(run)
    names = [group[0].recipe.name for group in groups.values()]
    return {
        group[0].recipe.name if names.count(group[0].recipe.name) == 1 else group[0].folder: group
        for group in groups.values()
    }


def summary(run, metric, target=None, at=()):
    """What one run reached in one metric.

    Returns:
        {"at ROUND" for each of `at`, None where that round was not measured; "last", "best": values; "best_round";
        and if `target` is given "target_round" and "target_bytes", None where it is not reached}.

    Raises:
        BadInput: The run does not measure it.
    """
    found = measured(run, metric)
    if not found:
        known = sorted({name for row in run.rows for name, value in row.items() if isinstance(value, float)})
        raise BadInput(f"{run.folder}: does not measure it; known: {', '.join(known)}. Received: metric={metric}")
    sign = direction(metric)
    best_round, best = best_of(run, metric, found)
    values = {f"at {round}": dict(found).get(round) for round in at}
    values |= {"last": found[-1][1], "best": best, "best_round": best_round}
    if target is not None:
        reached = [round for round, value in found if sign * value >= sign * target]
        values["target_round"] = reached[0] if reached else None
        values["target_bytes"] = cost(run, reached[0])["bytes"] if reached else None
    return values


def measured(run, metric):
    """(round, value) of every round in which a run has measured the metric."""
    return [(row["round"], row[metric]) for row in run.rows if isinstance(row.get(metric), (int, float))]


def direction(metric):
    """-1 where lower is better, else 1."""
    known = find(metric)
    return -1 if known and known.better == "lower" else 1


def best_of(run, metric, found):
    """The best round and its value: chosen on the held-out examples where the run has some."""
    values = dict(found)
    for chooser in CHOOSERS:
        pairs = [pair for pair in measured(run, chooser) if pair[0] in values]
        if pairs:
            best = max(pairs, key=lambda pair: direction(chooser) * pair[1])[0]
            return best, values[best]
    return max(found, key=lambda pair: direction(metric) * pair[1])


def usual_metrics(groups):
    """What is compared where nothing is asked for: the global accuracy, and that of every level that all runs have."""
    runs = [run for group in groups.values() for run in group]
    each = [{name: None for row in run.rows for name in row if name.startswith("level_accuracy_")} for run in runs]
    return ["global_accuracy", *(name for name in each[0] if all(name in others for others in each))]


def cost(run, last=None):
    """What a run cost up to round `last` (None: all of it): `{"bytes", "client_bytes", "train_flops"}`.

    "client_bytes" is the mean of an active client in a round. All are None where the metrics do not tell.
    """
    rows = [row for row in run.rows if last is None or row["round"] <= last]
    if not all(name in row for row in rows for name in ("bytes_down", "bytes_up", "train_flops")):
        return {"bytes": None, "client_bytes": None, "train_flops": None}
    total = sum(row["bytes_down"] + row["bytes_up"] for row in rows)
    clients = sum(sum(row["levels"].values()) for row in rows)
    return {"bytes": total, "client_bytes": total / clients, "train_flops": sum(row["train_flops"] for row in rows)}


def client_seconds(run):
    """Seconds of local training for each client and round, median over the run's calls; None where nobody measured.

    The first call does more than train: it fills caches, and XLA compiles in it.
    """
    each = [row["seconds"] / row["clients"] for row in run.timings if row["clients"]]
    return statistics.median(each) if each else None


def compare(groups, names, target=None, at=()):
    """One row for each group, ready for JSON: each value as {"mean", "spread", "of": runs that have it}."""
    rows, timed = [], any(run.timings for runs in groups.values() for run in runs)
    for name, runs in groups.items():
        row = {"name": name, "seeds": [run.recipe.seed for run in runs], "rounds": runs[0].recipe.rounds}
        for place, metric in enumerate(names):
            found = [summary(run, metric) if place else summary(run, metric, target, at) for run in runs]
            row |= {f"{metric} {key}": spread([values[key] for values in found]) for key in found[0]}
        costs = [cost(run) for run in runs]
        row |= {key: spread([values[key] for values in costs]) for key in costs[0]}
        rows.append(row | ({"client_seconds": spread([client_seconds(run) for run in runs])} if timed else {}))
    return rows


def spread(values):
    """The mean of the values that are not None, their standard deviation (None for one), and how many they are."""
    there = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(there) if there else None,
        "spread": statistics.stdev(there) if len(there) > 1 else None,
        "of": len(there),
    }


def table(rows):
    """The rows as a Markdown table."""
    keys = [key for key in rows[0] if isinstance(rows[0][key], dict) and not key.endswith("best_round")]
    heads = ["run", "seeds", "rounds", *(_head(key) for key in keys)]
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        seeds = len(row["seeds"])
        lines.append([row["name"], str(seeds), str(row["rounds"]), *(_cell(key, row[key], seeds) for key in keys)])
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _head(key):
    metric, _, what = key.rpartition(" ")
    return f"{metric} {HEADS.get(what, what)}".strip()


def _cell(key, value, seeds):
    if value["mean"] is None:
        return "-"
    unit = UNITS.get(key.rpartition(" ")[2], 1)
    text = f"{value['mean'] / unit:,.4g}"
    if value["spread"] is not None:
        text += f" ± {value['spread'] / unit:.2g}"
    return text if value["of"] == seeds else f"{text} ({value['of']} of {seeds})"


def unfinished(groups):
    """A sentence for each run that has not done all its rounds."""
    return [
        f"not finished: {run.folder}, {run.rows[-1]['round']} of {run.recipe.rounds} rounds"
        for runs in groups.values()
        for run in runs
        if run.rows[-1]["round"] < run.recipe.rounds
    ]


def main(arguments=None):
    """Reads, compares and prints; the exit code."""
    args = parse(arguments)
    if args.plugin:
        sys.path.append(os.getcwd())
        hardware.import_quietly()
    try:
        for module in args.plugin:
            register_plugin(module)
        groups = grouped([read(folder) for folder in args.folders])
        rows = compare(groups, args.metric or usual_metrics(groups), args.target, args.at)
    except Refusal as refusal:
        print(printable(f"error: {refusal}"), file=sys.stderr)
        return refusal.code
    print(json.dumps(rows) if args.json else printable(table(rows)))
    for sentence in unfinished(groups):
        print(printable(sentence), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
