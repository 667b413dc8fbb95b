"""A picture of a split: how many training examples each client has, and which labels."""

import numpy as np

from hetero_tf.partitions.partition import write_whole
from hetero_tf.partitions.statistics import label_counts

# Pixels of the parts, and the most columns and rows; more clients or labels share one.
WIDTH, HEIGHT, BARS, MARGIN, GAP = 800, 400, 100, 64, 12
COLUMNS, ROWS = 400, 100
PAPER, INK, FULL = np.array([[255, 255, 255], [90, 90, 90], [8, 48, 107]], np.float64)
# Digits 0 to 9, five rows of three pixels each, as octal numbers.
DIGITS = ("75557", "26227", "71747", "71717", "55711", "74717", "74757", "71111", "75757", "75717")
SCALE, LETTER = 2, 8


def draw(partition, train_labels, path):
    """Writes the picture as a PNG file: whole or not at all.

    Args:
        partition: `Partition`.
        train_labels: int `[n]` of images, or int `[rows, length]` of text.
        path: File to write.

    Raises:
        DiskProblem: The operating system refused to write.
    """
    import tensorflow as tf

    write_whole(path, tf.io.encode_png(paint(partition, train_labels)).numpy(), "picture")


def paint(partition, train_labels):
    """The picture as pixels.

    Clients run from left to right. The bars above are their numbers of training examples; the number beside them is
    the largest. Below, one row for each label, the first on top: the darker, the larger its share of the client's
    examples (white: none, dark blue: all; the root of the share, so that small ones can be seen). Where clients or
    labels are too many, neighbours share a column or row: the mean of their sizes, the sum of their labels.

    Returns:
        uint8 `[height, width, 3]`.
    """
    clients, classes = partition.label_mask.shape
    columns, rows = min(clients, COLUMNS), min(classes, ROWS)
    client, label, count = label_counts(train_labels, partition.train, classes)
    place = label * rows // classes * columns + client * columns // clients
    table = np.bincount(place, weights=count, minlength=rows * columns).reshape(rows, columns)
    column = np.arange(clients) * columns // clients
    sizes = np.bincount(column, weights=partition.train.sizes) / np.bincount(column)
    wide, high = max(WIDTH // columns, 1), max(HEIGHT // rows, 1)
    shares = np.sqrt(table / np.maximum(table.sum(axis=0), 1))
    below = PAPER + np.repeat(np.repeat(shares, high, 0), wide, 1)[..., None] * (FULL - PAPER)
    canvas = np.full((BARS + rows * high + 4 * GAP, MARGIN + columns * wide + MARGIN, 3), PAPER)
    canvas[GAP : GAP + BARS, MARGIN:-MARGIN] = _bars(sizes, wide)
    canvas[2 * GAP + BARS : 2 * GAP + BARS + len(below), MARGIN:-MARGIN] = below
    _frame(canvas, 2 * GAP + BARS, len(below))
    _number(canvas, int(partition.train.sizes.max()), GAP, MARGIN - 4, right=True)
    _ticks(canvas, clients, columns, wide, lambda at: (3 * GAP + BARS + len(below) - 4, MARGIN + at))
    _ticks(canvas, classes, rows, high, lambda at: (2 * GAP + BARS + at, MARGIN - 4), right=True)
    return np.round(canvas).astype(np.uint8)


def _bars(sizes, wide):
    """One bar for each column, `BARS` pixels for the largest: float `[BARS, columns * wide, 3]`."""
    filled = np.arange(BARS, 0, -1)[:, None] <= np.round(sizes / sizes.max() * BARS)
    return np.where(np.repeat(filled, wide, axis=1)[..., None], FULL, PAPER)


def _frame(canvas, top, high):
    """A thin line around the labels, and one under the bars."""
    for row in (GAP + BARS, top - 1, top + high):
        canvas[row, MARGIN - 1 : 1 - MARGIN] = INK
    for column in (MARGIN - 1, -MARGIN):
        canvas[top : top + high, column] = INK


def _ticks(canvas, count, cells, size, place, right=False):
    """Numbers of clients or labels at cells that are far enough apart; `place` gives (row, column) of a pixel."""
    apart = 2 * LETTER if right else LETTER * (len(str(count)) + 1)
    for cell in range(0, cells, -(-apart // size)):
        _number(canvas, -(-cell * count // cells), *place(cell * size), right)


def _number(canvas, value, row, column, right=False):
    """Writes a number with its upper left corner, or upper right one, at a pixel."""
    text = str(value)
    column = max(column - LETTER * len(text), 0) if right else column
    for digit in text:
        bits = np.array([[int(line) >> bit & 1 for bit in (2, 1, 0)] for line in DIGITS[int(digit)]], bool)
        bits = bits.repeat(SCALE, 0).repeat(SCALE, 1)
        area = canvas[row : row + bits.shape[0], column : column + bits.shape[1]]
        area[bits[: area.shape[0], : area.shape[1]]] = INK
        column += LETTER
