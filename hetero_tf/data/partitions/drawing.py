"""Plots a partition: the training and held-out examples of each client, and its labels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.data.partitions.partition import Partition, label_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Largest number of columns and rows; beyond it, adjacent clients or labels share one.
COLUMNS, ROWS = 400, 100
# Most labels for which cells have numbers.
MOST_NUMBERS = 30


def draw_into(
    figure: "Figure | SubFigure", partition: Partition, sizes: np.ndarray, shares: np.ndarray, meaning: str
) -> None:
    """Draw a partition into an empty figure with constrained layout.

    Clients run from left to right. The bars show the number of training examples, with held-out examples in a lighter
    colour on top. The colours below show the share of each label among the training examples. Beyond `COLUMNS` clients
    or `ROWS` labels, adjacent ones share a column or row: the mean of their sizes, the sum of their labels.

    Args:
        sizes, shares: Results of `table`.
        meaning: Label of the colour bar.
    """
    clients, classes = partition.label_mask.shape
    above, below = figure.subplots(2, sharex=True, height_ratios=(1, 2))
    edges = np.linspace(0, clients, len(sizes) + 1)
    above.stairs(sizes, edges, fill=True, color="#08306b", label="trained on")
    if partition.held_out.ids.size:
        held_out = _column_means(partition.held_out.sizes, len(sizes))
        above.stairs(sizes + held_out, edges, baseline=sizes, fill=True, color="#9ecae1", label="held out")
        above.legend(
            fontsize="small", ncols=2, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, borderaxespad=0
        )
    above.set(ylabel="examples", xlim=(0, clients), ylim=(0, None))
    extent = (0, clients, classes - 0.5, -0.5)
    image = below.imshow(shares, "Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=extent)
    below.set(xlabel="client id", ylabel="label")
    below.yaxis.get_major_locator().set_params(integer=True)
    for panel in (above, below):
        panel.grid(False)
    figure.colorbar(image, ax=(above, below), label=meaning, aspect=30)


def draw_coverage(panel: "Axes", coverage: np.ndarray, levels: Sequence[str]) -> None:
    """Draw how many clients train the channels of each level, for each label.

    Args:
        coverage: int `[levels, labels]`, see `notes.label_coverage`.
        levels: Names of the levels, the widest first.
    """
    labels = coverage.shape[1]
    panel.imshow(coverage, "Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=max(1.5 * coverage.max(), 1))
    panel.set(xticks=range(0, labels, 1 + labels // MOST_NUMBERS))
    if labels <= MOST_NUMBERS:
        for row, label in np.ndindex(coverage.shape):
            panel.text(label, row, str(coverage[row, label]), ha="center", va="center", fontsize="small")
    panel.set(xlabel="label", ylabel="channels of level", yticks=range(len(levels)), yticklabels=levels)
    panel.set_title("clients that have a label and train the channels of a level", fontsize="medium")
    panel.grid(False)


def table(partition: Partition, train_labels: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the plotted numbers.

    Returns:
        float64 `[columns]`, the mean number of training examples of a column's clients; float64 `[rows, columns]`, the
        share of each label among them, or, without the labels, the share of these clients that have a label.
    """
    clients, classes = partition.label_mask.shape
    columns, rows = min(clients, COLUMNS), min(classes, ROWS)
    if train_labels is None:
        (client, label), count = np.nonzero(partition.label_mask), None
    else:
        client, label, count = label_counts(train_labels, partition.train, classes)
    cell = label * rows // classes * columns + client * columns // clients
    counts = np.bincount(cell, weights=count, minlength=rows * columns).reshape(rows, columns)
    sizes = (np.bincount(np.arange(total) * parts // total) for total, parts in ((classes, rows), (clients, columns)))
    totals = np.multiply.outer(*sizes) if train_labels is None else np.maximum(counts.sum(axis=0), 1)
    return _column_means(partition.train.sizes, columns), counts / totals


def _column_means(sizes, columns):
    column = np.arange(len(sizes)) * columns // len(sizes)
    return np.bincount(column, weights=sizes) / np.bincount(column)
