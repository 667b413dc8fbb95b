#!/usr/bin/env python3
"""Selects the rates of the study on labels that follow devices, and prints its tables and figure.

    benchmarks/study.py rates runs/study-pilots         # the pilots by method, share and rate
    benchmarks/study.py sweep runs/study-pilots         # writes labels_devices.yaml with the selected rates
    benchmarks/study.py tables benchmarks/rows/labels_devices [--draw FILE.png]

benchmarks/study/README.md has the protocol.
"""

import argparse
import dataclasses
import statistics
from collections import defaultdict
from pathlib import Path

from checkout import ROOT

from hetero_tf.reports.summaries import mean_and_spread, paired_difference
from hetero_tf.runs import history
from hetero_tf.sweeps.bench_rows import read_row
from hetero_tf.sweeps.definition import read, to_yaml

FOLDER = ROOT / "benchmarks" / "study"
RATE, SHARE, SELECTION = "optimizer.learning_rate", "partition.shuffled", "validation_accuracy"
SHARES = (0.0, 0.5, 1.0)
SEEDS = (10, 11, 12, 13, 14)
HEADER = """\
# How far labels follow devices: each method at the rate that the pilots selected, with five other seeds.
# Source: ours; `benchmarks/study.py sweep` writes this file, and README.md has the protocol.
# Runs: 225. Cost: about an hour and a half on two cores.
# Run: bin/hetero_tf bench benchmarks/study/labels_devices.yaml --run_dir runs/study --jobs 2
"""


def pilots(folder):
    """The mean of the best validation accuracy over the seeds: `{method: {share: {rate: mean}}}`, of finished runs."""
    values = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for run in history.gather([folder])[0]:
        if run.is_finished:
            best = max(row[SELECTION] for row in run.rows if SELECTION in row)
            values[run.name][run.keys[SHARE]][run.keys[RATE]].append(best)
    return {
        method: {
            share: {rate: statistics.mean(values) for rate, values in sorted(rates.items())}
            for share, rates in sorted(shares.items())
        }
        for method, shares in values.items()
    }


def selected_rates(shares):
    """The rate for each of SHARES; between the two pilots, the rate with the best mean over both."""
    (low, at_low), (high, at_high) = shares.items()
    both = {rate: at_low[rate] + at_high[rate] for rate in at_low.keys() & at_high.keys()}
    best = {share: max(means, key=means.get) for share, means in shares.items()}
    return {low: best[low], (low + high) / 2: max(both, key=both.get), high: best[high]}


def print_rates(folder):
    """Prints a row for each method and share; an arrow marks a best rate at an edge of its grid."""
    print("| method | share | validation accuracy by rate | best |\n| --- | --- | --- | --- |")
    for method, shares in pilots(folder).items():
        for share, means in shares.items():
            best = max(means, key=means.get)
            edge = " <- edge" if best in (min(means), max(means)) else ""
            cells = ", ".join(f"{rate:g}: {mean:.1f}" for rate, mean in means.items())
            print(f"| {method} | {share:g} | {cells} | {best:g}{edge} |")


def write_sweep(folder):
    """Writes the sweep of the results: the parts of the pilots with the selected rates, at each share."""
    rates = {method: selected_rates(shares) for method, shares in pilots(folder).items()}
    parts = []
    for part in read(FOLDER / "pilots.yaml"):
        for share in SHARES:
            entries = tuple(entry | {RATE: rates[entry["name"]][share]} for entry in part.list)
            parts.append(dataclasses.replace(part, list=entries, grid={SHARE: (share,)}, seeds=SEEDS))
    _, text = to_yaml(parts).split("\n", 1)
    (FOLDER / "labels_devices.yaml").write_text(HEADER + text, "utf-8")


def results(folder):
    """The metrics of the best rounds: `{method: {share: {seed: {name: value}}}}`, from the rows of a folder."""
    values = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        row = read_row(path)
        method, share = row.name.split(f"-{SHARE}=")
        values[method][float(share)] = {run.seed: run.best for run in row.runs}
    return values


def tables(values):
    """Markdown: Global by share, its difference to FedAvg at the narrowest width, and the levels at both ends."""
    lines = [
        "| method | " + " | ".join(f"Global, share {share:g}" for share in SHARES) + " | 0 minus 1 |",
        "| --- " * (len(SHARES) + 2) + "|",
    ]
    for method, shares in values.items():
        cells = [_mean(shares[share], "global_accuracy") for share in SHARES]
        lines.append(f"| {method} | " + " | ".join([*cells, _difference(shares[0.0], shares[1.0])]) + " |")
    lines += ["", "| method | " + " | ".join(f"share {share:g}" for share in SHARES) + " |", "| --- " * 4 + "|"]
    for method, shares in values.items():
        if method != "fedavg_narrow":
            cells = [_difference(shares[share], values["fedavg_narrow"][share]) for share in SHARES]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    names = ("level_accuracy_a", "level_accuracy_b", "level_accuracy_c", "local_accuracy", "local_worst_decile")
    heads = ("level a", "b", "c", "Local", "its worst tenth")
    lines += ["", "| method | share | " + " | ".join(heads) + " |", "| --- " * 7 + "|"]
    for method, shares in values.items():
        for share in (0.0, 1.0):
            cells = [_mean(shares[share], name) for name in names]
            lines.append(f"| {method} | {share:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _mean(runs, name):
    """The mean and standard deviation over the seeds."""
    summary = mean_and_spread(metrics.get(name) for metrics in runs.values())
    return f"{summary['mean']:.1f} ± {summary['spread']:.1f}" if summary["of"] else "-"


def _difference(runs, others):
    """The mean of the differences of Global by seed, and its interval; bold if it excludes zero."""
    paired = [runs[seed]["global_accuracy"] - others[seed]["global_accuracy"] for seed in sorted(runs)]
    test = paired_difference(paired)
    text = f"{test['mean']:+.1f} ({test['low']:+.1f} to {test['high']:+.1f})"
    return f"**{text}**" if test["low"] * test["high"] > 0 else text


def draw(values, path):
    """Draws Global by share for each method, with the standard deviation over the seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    panel = figure.subplots()
    for number, (method, shares) in enumerate(values.items()):
        accuracies = [[each["global_accuracy"] for each in shares[share].values()] for share in SHARES]
        means, spreads, _ = zip(*(mean_and_spread(each).values() for each in accuracies))
        shift = 0.004 * (number - len(values) / 2)
        look = {"ls": ("-", "--", ":")[number // 6 % 3], "marker": "os^Dvx"[number % 6], "markersize": 4}
        panel.errorbar([share + shift for share in SHARES], means, spreads, label=method, capsize=2, lw=1.2, **look)
    panel.set(xlabel="share of the clients that exchange their labels", ylabel="Global accuracy (%)", xticks=SHARES)
    panel.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    figure.savefig(path)


def main():
    """Runs one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("rates", "sweep", "tables"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draw", type=Path, help="PNG file of the figure")
    args = parser.parse_args()
    if args.command == "rates":
        print_rates(args.folder)
    elif args.command == "sweep":
        write_sweep(args.folder)
    else:
        values = results(args.folder)
        print(tables(values))
        if args.draw:
            draw(values, args.draw)


if __name__ == "__main__":
    main()
