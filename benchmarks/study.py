#!/usr/bin/env python3
"""Prints the rates of the study on labels that follow devices, its tables and differences, and draws its figures.

    benchmarks/study.py rates runs/study-pilots         # the pilots by method, share and rate
    benchmarks/study.py tables benchmarks/rows/labels_devices [--draw FILE.png]
    benchmarks/study.py trained RUN RUN ... [--draw FILE.png]   # which weights of the last layer were trained
    benchmarks/study.py differences benchmarks/rows/digits_methods benchmarks/rows/digits_personal

benchmarks/study/README.md has the protocol.
"""

import argparse
import math
import statistics
from collections import defaultdict
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries
import numpy as np
from packed import describe_difference, markdown

from hetero_tf import learning_process, load_recipe
from hetero_tf.reports.summaries import mean_and_spread
from hetero_tf.runs import checkpoints, history
from hetero_tf.runs.run_folder import RunFolder
from hetero_tf.sweeps.bench_rows import read_row

RATE, SHARE, SELECTION = "optimizer.learning_rate", "partition.shuffled", "validation_accuracy"
SHARES = (0.0, 0.5, 1.0)
# A single change of a method, and the method without it.
CHANGES = {
    "heterofl_all_rows": "heterofl",
    "heterofl_unmasked": "heterofl_all_rows",
    "heterofl_heads": "heterofl",
    "fedrolex": "heterofl_unmasked",
    "fjord": "fjord_controlled",
    "depthfl": "depthfl_controlled",
}
# On the splits that methods are made for: methods and their baselines, by the metric that their papers report.
BASELINES = {
    "local_accuracy": (
        *(
            (f"labels_{method}", "labels_fedavg")
            for method in ("apfl", "ditto", "fedper", "fedrep", "pfedme", "heterofl")
        ),
        ("labels_apfl", "labels_ditto"),
        *((f"noise_{method}", "noise_fedavg") for method in ("fedbn", "heterofl")),
    ),
    "global_accuracy": (
        ("steps_fednova", "steps_fedavg"),
        ("steps_heterofl", "steps_fedavg"),
        ("steps_heterofl_fednova", "steps_heterofl"),
        *((f"loss_{method}", "loss_fedavg") for method in ("qfedavg_weak", "qfedavg", "heterofl")),
        ("norms_heterofl", "norms_fedavg"),
        ("norms_nefl", "norms_heterofl"),
        ("blocks_nefl", "blocks_heterofl"),
        ("blocks_nefl_steps", "blocks_nefl"),
        ("depth_inclusivefl", "depth_fedavg"),
        ("depth_inclusivefl_momentum", "depth_inclusivefl"),
        *((f"contrast_{method}", "contrast_fedavg") for method in ("moon", "heterofl")),
    ),
}


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


def print_rates(folder):
    """Prints a row for each method and share; an arrow marks a best rate at an edge of its grid."""
    print("| method | share | validation accuracy by rate | best |\n| --- | --- | --- | --- |")
    for method, shares in pilots(folder).items():
        for share, means in shares.items():
            best = max(means, key=means.get)
            edge = " <- edge" if best in (min(means), max(means)) else ""
            cells = ", ".join(f"{rate:g}: {mean:.1f}" for rate, mean in means.items())
            print(f"| {method} | {share:g} | {cells} | {best:g}{edge} |")


def results(folder):
    """The metrics of the best rounds, `{method: {share: {seed: {name: value}}}}`, from the rows of a folder.

    Methods are in the order of Global at share 0.
    """
    values = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        row = read_row(path)
        method, share = row.name.split(f"-{SHARE}=")
        values[method][float(share)] = {run.seed: run.best for run in row.runs}

    def accuracy(method):
        return statistics.fmean(run["global_accuracy"] for run in values[method][0.0].values())

    return {method: values[method] for method in sorted(values, key=accuracy, reverse=True)}


def common_shares(values):
    """The shares that all methods have."""
    return [share for share in SHARES if all(share in shares for shares in values.values())]


def tables(values):
    """Markdown: Global by share, its differences to FedAvg at the narrowest width and by change, and the levels."""
    measured = common_shares(values)
    heads = " | ".join(f"share {share:g}" for share in measured)
    rule = "| --- " * (len(measured) + 1) + "|"
    lines = [f"| method | {heads} | 0 minus 1 |", f"| --- {rule}"]
    for method, shares in values.items():
        cells = [_mean(shares[share], "global_accuracy") for share in measured]
        lines.append(f"| {method} | " + " | ".join([*cells, _difference(shares[0.0], shares[1.0])]) + " |")
    to_narrow = {method: (method, "fedavg_narrow") for method in values if method != "fedavg_narrow"}
    by_change = {f"{method}, {other}": (method, other) for method, other in CHANGES.items()}
    for head, pairs in (("method", to_narrow), ("method, minus", by_change)):
        lines += ["", f"| {head} | {heads} |", rule]
        for name, (method, other) in pairs.items():
            if {method, other} <= values.keys():
                cells = [_difference(values[method][share], values[other][share]) for share in measured]
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
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


def _difference(runs, others, metric="global_accuracy"):
    return describe_difference(*([each[seed][metric] for seed in sorted(runs)] for each in (runs, others)))


def differences(folders):
    """Markdown of the differences of BASELINES, from the rows of some folders."""
    rows = [read_row(path) for folder in folders for path in folder.glob("*.json")]
    runs = {row.name.split(f"-{RATE}=")[0]: {run.seed: run.best for run in row.runs} for row in rows}
    cells = [
        (f"{method}, {other}", metric.partition("_")[0], _difference(runs[method], runs[other], metric))
        for metric, pairs in BASELINES.items()
        for method, other in pairs
    ]
    return markdown(("method, minus", "metric", "difference"), cells)


def draw(values, path):
    """Draws Global by share, a panel for each method: each seed, the means, and those of `fedavg_narrow`."""
    from matplotlib.figure import Figure

    measured = common_shares(values)
    runs = {
        method: [[each["global_accuracy"] for each in shares[share].values()] for share in measured]
        for method, shares in values.items()
    }
    means = {method: [statistics.fmean(each) for each in by_share] for method, by_share in runs.items()}
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    panels = figure.subplots(math.ceil(len(runs) / 5), 5, sharex=True, sharey=True)
    for panel, (method, by_share) in zip(panels.flat, runs.items()):
        panel.plot(measured, means["fedavg_narrow"], color="#999999", lw=1, ls="--")
        for share, accuracies in zip(measured, by_share):
            panel.plot([share] * len(accuracies), accuracies, "o", color="#0072b2", alpha=0.55, markersize=4)
        panel.plot(measured, means[method], color="#0072b2", lw=1.4)
        panel.set_title(method, fontsize=9)
        panel.set(xticks=measured, xlim=(-0.12, 1.12), ylim=(60, 100))
        panel.grid(color="#e3e3e3", lw=0.6)
    figure.supxlabel("share of the clients that exchange their labels; dashed: fedavg_narrow", fontsize=9)
    figure.supylabel("Global accuracy (%)", fontsize=9)
    figure.savefig(path)


def trained(folder):
    """How far the weights of the last layer of a run have moved from their initial values.

    Returns:
        The method and its share, and `{level: mean of |change| for each label}`, of the channels that this level has
        and the next narrower one lacks.
    """
    recipe = load_recipe(folder / "recipe.yaml")
    name = f"{recipe.name}, share {recipe.partition.options['shuffled']:g}"
    weights = learning_process(recipe).initialize().weights
    kernel = [path for path, value in weights.items() if value.ndim == 2][-1]
    newest = checkpoints.load_newest(RunFolder(folder).checkpoints)
    change = np.abs(newest.arrays[f"weights/{kernel}"] - weights[kernel])
    widths = sorted((width, level) for level, width in recipe.levels.widths.items())
    ends = [0, *(round(width * len(change)) for width, _ in widths)]
    return name, {level: change[low:high].mean(0) for (_, level), low, high in zip(widths, ends, ends[1:])}


def draw_trained(changes, path):
    """Draws the changes of several runs as maps of levels and labels, with 0 where no weight was trained."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(changes), 2.2), dpi=120, layout="constrained")
    highest = max(row.max() for rows in changes.values() for row in rows.values())
    for panel, (name, rows) in zip(figure.subplots(1, len(changes), squeeze=False)[0], changes.items()):
        panel.imshow(list(rows.values()), cmap="Blues", vmin=0, vmax=highest, aspect="auto")
        for index, row in enumerate(rows.values()):
            for label, value in enumerate(row):
                colour = "white" if value > highest / 2 else "black"
                panel.text(label, index, f"{value:.2g}"[:4], ha="center", va="center", color=colour, size=7)
        panel.set_yticks(range(len(rows)), rows)
        panel.set_xticks(range(len(next(iter(rows.values())))))
        panel.set(title=name, xlabel="label", ylabel="channels of level")
    figure.savefig(path)


def main():
    """Runs one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("rates", "tables", "trained", "differences"))
    parser.add_argument("folders", type=Path, nargs="+", metavar="folder")
    parser.add_argument("--draw", type=Path, help="PNG file of the figure")
    args = parser.parse_args()
    folder = args.folders[0]
    if args.command == "rates":
        print_rates(folder)
    elif args.command == "differences":
        print(differences(args.folders))
    elif args.command == "trained":
        changes = dict(map(trained, args.folders))
        for name, rows in changes.items():
            print(
                name,
                *(f"{level}: {' '.join(f'{value:.3f}' for value in row)}" for level, row in rows.items()),
                sep="\n",
            )
        if args.draw:
            draw_trained(changes, args.draw)
    else:
        values = results(folder)
        print(tables(values))
        if args.draw:
            draw(values, args.draw)


if __name__ == "__main__":
    main()
