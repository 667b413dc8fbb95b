#!/usr/bin/env python3
"""Draws the picture of README that shows how levels cut a layer; `bin/hetero_tf plot` draws learning curves.

benchmarks/pictures.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import checkout  # noqa: F401  finds hetero_tf and its libraries

from hetero_tf.base import hardware
from hetero_tf.base.files import replace_file
from hetero_tf.base.registry import find

PICTURE = Path(__file__).resolve().parent / "pictures" / "levels.png"
# The layer, and the number of clients of the round with each share of its channels.
INPUTS, OUTPUTS, CLIENTS = 16, 32, {"a": (1.0, 2), "b": (0.5, 3), "c": (0.25, 5)}
WAYS = {"prefix": "prefix (HeteroFL)", "rolling": "rolling (FedRolex), round 5", "random": "random (Federated Dropout)"}


def parse(arguments=None):
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE, help="PNG file to write")
    return parser.parse_args(arguments)


def coverage(way, round_number=5):
    """Number of clients of one round that train each entry of a layer: int `[INPUTS, OUTPUTS]`."""
    import numpy as np

    keep, counts, client = find("submodels", way).keep, np.zeros((INPUTS, OUTPUTS), int), 0
    for share, num_clients in CLIENTS.values():
        for _ in range(num_clients):
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
    for level, (share, num_clients) in CLIENTS.items():
        width, height = OUTPUTS * share, INPUTS * share
        panels[0].plot((0, width, width), (height, height, 0), color="#7b241c", linewidth=1.5, clip_on=False)
        colour = "white" if level == "c" else "#7b241c"
        text = f"level {level}: {num_clients} clients" if level == "a" else f"{level}: {num_clients} clients"
        panels[0].text(width - 0.5, height - 0.4, text, color=colour, ha="right", va="bottom", fontsize=8)
    bar = figure.colorbar(image, ax=panels, location="bottom", aspect=60, shrink=0.6)
    bar.set_label("clients of the round that train an entry: the merge divides by this number, entry by entry")


def main(arguments=None):
    """Draws the picture."""
    out = parse(arguments).out
    from matplotlib.figure import Figure

    hardware.import_quietly()
    figure = Figure(figsize=(10, 3.4), dpi=130, layout="constrained", facecolor="white")
    draw_levels(figure)
    PICTURE.parent.mkdir(exist_ok=True)
    with replace_file(out) as file:
        figure.savefig(file, format="png", metadata={"Software": None})
    print(f"drew {out}")


if __name__ == "__main__":
    main()
