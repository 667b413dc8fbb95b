"""A picture of a split: how many training and held-out examples each client has, and which labels."""

from pathlib import Path

import numpy as np

from hetero_tf.base.errors import BadInput
from hetero_tf.base.files import replacing
from hetero_tf.partitions.partition import Partition
from hetero_tf.partitions.statistics import label_counts

# The most columns and rows that are drawn; of more clients or labels, neighbours share one.
COLUMNS, ROWS = 400, 100


def draw(partition: Partition, train_labels: np.ndarray, path: Path) -> None:
    """Writes the picture as a PNG file: whole or not at all.

    Clients run from left to right. The bars show how many training examples each of them has, paler on top how many
    are held out, and the colours below the share of each label among its training examples. Where clients or labels
    are too many, neighbours share a column or row: the mean of their sizes, the sum of their labels.

    Args:
        partition: The split.
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        path: File to write.

    Raises:
        BadInput: matplotlib is not installed.
        DiskProblem: The operating system refused to write.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("--draw needs matplotlib, which is not installed; install it: pip install matplotlib") from error
    sizes, shares = table(partition, train_labels)
    clients, classes = partition.label_mask.shape
    figure = Figure(figsize=(9, 5), dpi=120, layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(1, 3))
    edges = np.linspace(0, clients, len(sizes) + 1)
    above.stairs(sizes, edges, fill=True, color="#08306b", label="trained on")
    if partition.held_out.ids.size:
        held_out = _means(partition.held_out.sizes, len(sizes))
        above.stairs(sizes + held_out, edges, baseline=sizes, fill=True, color="#9ecae1", label="held out")
        above.legend(fontsize="small")
    above.set(ylabel="examples", xlim=(0, clients), ylim=(0, None))
    extent = (0, clients, classes, 0)
    image = below.imshow(shares, "Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=extent)
    below.set(xlabel="client", ylabel="label")
    figure.colorbar(image, ax=below, label="share of the client's examples")
    with replacing(path) as file:
        figure.savefig(file, format="png")


def table(partition: Partition, train_labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what is drawn.

    Returns:
        float64 `[columns]`, the mean number of training examples of a column's clients; float64 `[rows, columns]`, the
        share of each label among them.
    """
    clients, classes = partition.label_mask.shape
    columns, rows = min(clients, COLUMNS), min(classes, ROWS)
    client, label, count = label_counts(train_labels, partition.train, classes)
    cell = label * rows // classes * columns + client * columns // clients
    counts = np.bincount(cell, weights=count, minlength=rows * columns).reshape(rows, columns)
    return _means(partition.train.sizes, columns), counts / np.maximum(counts.sum(axis=0), 1)


def _means(sizes, columns):
    """The mean of the sizes of each column's clients: float64 `[columns]`."""
    column = np.arange(len(sizes)) * columns // len(sizes)
    return np.bincount(column, weights=sizes) / np.bincount(column)
