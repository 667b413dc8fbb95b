"""The picture of a split: the numbers that are drawn."""

import dataclasses

import numpy as np
import pytest
from splits import shares

from hetero_tf.data.partitions import drawing
from hetero_tf.data.partitions.partition import ClientExamples, Partition, label_mask

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 2], np.int32)


def partition(lists):
    train = shares(*lists)
    return Partition(train, ClientExamples.empty(len(lists)), label_mask(LABELS, train, 3))


def test_sizes_and_shares_of_labels():
    sizes, shares_of_labels = drawing.table(partition([[0, 1, 2], [4, 5, 6, 7], [0]]), LABELS)
    assert sizes.tolist() == [3, 4, 1]
    np.testing.assert_allclose(shares_of_labels, [[2 / 3, 0, 1], [1 / 3, 0, 0], [0, 1, 0]])


def test_neighbours_share_columns_and_rows_where_there_are_too_many():
    clients = 3 * drawing.COLUMNS + 7
    labels = np.arange(2 * clients, dtype=np.int32) % 1000
    train = ClientExamples.from_sizes(np.arange(2 * clients, dtype=np.int32), np.full(clients, 2))
    sizes, shares_of_labels = drawing.table(
        Partition(train, ClientExamples.empty(clients), np.ones((clients, 1000), bool)), labels
    )
    assert sizes.tolist() == [2] * drawing.COLUMNS
    assert shares_of_labels.shape == (drawing.ROWS, drawing.COLUMNS)
    np.testing.assert_allclose(shares_of_labels.sum(axis=0), 1)


def test_validation_examples_are_stacked_on_the_bars():
    """Sizes and labels are those of training; the figure has further bars where examples are held out."""
    figures = pytest.importorskip("matplotlib.figure")
    split = partition([[0, 1, 2], [4, 5, 6]])
    with_validation = dataclasses.replace(split, held_out=shares([3], [7]))
    for one, other in zip(drawing.table(split, LABELS), drawing.table(with_validation, LABELS)):
        np.testing.assert_array_equal(one, other)
    for drawn, bars in ((split, 1), (with_validation, 2)):
        figure = figures.Figure(layout="constrained")
        drawing.draw_into(figure, drawn, *drawing.table(drawn, LABELS), "share")
        assert len(figure.axes[0].patches) == bars


def test_plot_without_data_shows_labels_of_clients():
    split = partition([[0, 1, 2], [4, 5, 6, 7], [0]])
    sizes, shares_of_labels = drawing.table(split)
    assert sizes.tolist() == [3, 4, 1]
    np.testing.assert_array_equal(shares_of_labels, split.label_mask.T)


def test_neighbours_share_what_labels_they_have(monkeypatch):
    monkeypatch.setattr(drawing, "COLUMNS", 2)
    monkeypatch.setattr(drawing, "ROWS", 2)
    split = partition([[0], [0, 2], [4], [4, 0]])
    sizes, shares_of_labels = drawing.table(split)
    assert sizes.tolist() == [1.5, 1.5]
    # Labels 0 and 1 share a row, and two clients each a column.
    cells = split.label_mask.astype(float)
    expected = [[cells[:2, :2].mean(), cells[2:, :2].mean()], [cells[:2, 2].mean(), cells[2:, 2].mean()]]
    np.testing.assert_allclose(shares_of_labels, expected)


def test_all_axes_have_names():
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    split = partition([[0, 1], [4]])
    drawing.draw_into(figure, split, *drawing.table(split, LABELS), "share")
    above, below, bar = figure.axes
    names = (above.get_ylabel(), below.get_xlabel(), below.get_ylabel(), bar.get_ylabel())
    assert names == ("examples", "client id", "label", "share")
