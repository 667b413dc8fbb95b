#!/usr/bin/env python3
"""Draws the pictures of README: how levels cut a layer, and the learning curves of finished runs.

    benchmarks/pictures.py levels
    benchmarks/pictures.py curve runs/compared/mnist/* [--metric global_accuracy]

Both write a PNG file into benchmarks/pictures, or to `--out`. Run folders whose recipes have the same name are one
curve: its line is the mean over their seeds, its band reaches from the lowest to the highest seed.
"""

import argparse
import statistics
import sys
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware
from hetero_tf.base.files import replacing
from hetero_tf.base.metrics import renamed
from hetero_tf.base.registry import find
from hetero_tf.recipe import loads
from hetero_tf.store import metrics
from hetero_tf.store.run_folder import RunFolder

PICTURES = Path(__file__).resolve().parent / "pictures"
# The layer of the first picture, and how many clients of the round have each share of its channels.
INPUTS, OUTPUTS, CLIENTS = 16, 32, {"a": (1.0, 2), "b": (0.5, 3), "c": (0.25, 5)}
WAYS = {"prefix": "prefix (HeteroFL)", "rolling": "rolling (FedRolex), round 5", "random": "random (Federated Dropout)"}
COLOURS = ("#0b5394", "#c0392b", "#2e7d32", "#8e44ad", "#e67e22", "#455a64", "#00838f")


def parse(arguments=None):
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="picture", required=True)
    kinds.add_parser("levels", help="how levels cut a layer")
    curve = kinds.add_parser("curve", help="learning curves of finished runs")
    curve.add_argument("folders", nargs="+", type=Path, help="run folders")
    curve.add_argument("--metric", default="global_accuracy")
    for kind in kinds.choices.values():
        kind.add_argument("--out", type=Path, help="PNG file to write")
    return parser.parse_args(arguments)


def coverage(way, round_number=5):
    """How many clients of one round train each entry of a layer: int `[INPUTS, OUTPUTS]`."""
    import numpy as np

    keep, counts, client = find("submodels", way).keep, np.zeros((INPUTS, OUTPUTS), int), 0
    for share, many in CLIENTS.values():
        for _ in range(many):
            rows, columns = (np.asarray(keep(n, int(n * share), round_number, client, 0)) for n in (INPUTS, OUTPUTS))
            counts[np.ix_(rows, columns)] += 1
            client += 1
    return counts


def draw_levels(figure):
    """Three ways to choose the channels of a sub-model, as the number of clients that train each entry."""
    panels = figure.subplots(1, len(WAYS), sharey=True)
    for panel, (way, title) in zip(panels, WAYS.items()):
        image = panel.imshow(coverage(way), "Blues", vmin=0, vmax=10, extent=(0, OUTPUTS, INPUTS, 0), aspect="auto")
        panel.set_title(title, fontsize=11)
        panel.set(xlabel="output channel", xticks=range(0, OUTPUTS + 1, 8), yticks=range(0, INPUTS + 1, 4))
    panels[0].set_ylabel("input channel")
    for level, (share, many) in CLIENTS.items():
        width, height = OUTPUTS * share, INPUTS * share
        panels[0].plot((0, width, width), (height, height, 0), color="#7b241c", linewidth=1.5, clip_on=False)
        colour = "white" if level == "c" else "#7b241c"
        text = f"level {level}: {many} clients" if level == "a" else f"{level}: {many} clients"
        panels[0].text(width - 0.5, height - 0.4, text, color=colour, ha="right", va="bottom", fontsize=8)
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=60, shrink=0.6)
    bar.set_label("clients of the round that train an entry: the merge divides by this number, entry by entry")


def curves(folders, metric):
    """`{name: {round: [value of each seed]}}` of the rounds in which the metric was measured."""
    found = {}
    for folder in folders:
        name = loads(RunFolder(folder).read_recipe()).name
        for row in map(renamed, metrics.rows(RunFolder(folder).metrics)):
            if row.get(metric) is not None:
                found.setdefault(name, {}).setdefault(row["round"], []).append(row[metric])
    if not found:
        sys.exit(f"none of the runs has measured {metric}")
    return found


def draw_curves(figure, found, metric):
    """One line for each name, with a band from the lowest to the highest seed."""
    panel = figure.subplots()
    last = {name: statistics.mean(values[max(values)]) for name, values in found.items()}
    for colour, name in zip(COLOURS, sorted(found, key=last.get, reverse=True)):
        rounds = sorted(found[name])
        seeds = [found[name][number] for number in rounds]
        panel.plot(rounds, [statistics.mean(values) for values in seeds], color=colour, label=name, linewidth=2)
        panel.fill_between(rounds, list(map(min, seeds)), list(map(max, seeds)), color=colour, alpha=0.12, linewidth=0)
    panel.set(xlabel="round", ylabel=metric.replace("_", " ") + (" (%)" if "accuracy" in metric else ""))
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(alpha=0.3)
    panel.legend(loc="upper left", frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def main(arguments=None):
    """Draws the picture that the arguments name."""
    args = parse(arguments)
    from matplotlib.figure import Figure

    hardware.import_quietly()
    size = (10, 3.4) if args.picture == "levels" else (8, 4.2)
    figure = Figure(figsize=size, dpi=130, layout="constrained", facecolor="white")
    if args.picture == "levels":
        draw_levels(figure)
    else:
        draw_curves(figure, curves(args.folders, args.metric), args.metric)
    PICTURES.mkdir(exist_ok=True)
    out = args.out or PICTURES / f"{args.picture}.png"
    with replacing(out) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    print(f"drew {out}")


if __name__ == "__main__":
    main()
