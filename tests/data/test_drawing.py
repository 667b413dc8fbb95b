"""The picture of a split: the numbers that are drawn, and the file."""

import dataclasses
import sys

import numpy as np
import pytest
from splits import shares

from hetero_tf.base.errors import DiskProblem, InputError
from hetero_tf.data.partitions import drawing
from hetero_tf.data.partitions.partition import Partition, label_mask
from hetero_tf.data.partitions.shares import ClientExamples

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


def test_validation_examples_are_stacked_on_the_bars(tmp_path):
    """Sizes and labels are those of training; the picture differs where examples are held out."""
    pytest.importorskip("matplotlib")
    split = partition([[0, 1, 2], [4, 5, 6]])
    with_validation = dataclasses.replace(split, held_out=shares([3], [7]))
    for one, other in zip(drawing.table(split, LABELS), drawing.table(with_validation, LABELS)):
        np.testing.assert_array_equal(one, other)
    for name, drawn in (("without", split), ("with", with_validation)):
        drawing.draw(drawn, LABELS, tmp_path / name)
    assert (tmp_path / "with").read_bytes() != (tmp_path / "without").read_bytes()


def test_png_file_is_written_atomically(tmp_path):
    pytest.importorskip("matplotlib")
    split = partition([[0, 1, 2, 3], [4, 5, 6, 7]])
    drawing.draw(split, LABELS, tmp_path / "split.png")
    content = (tmp_path / "split.png").read_bytes()
    assert content.startswith(b"\x89PNG") and content.endswith(b"IEND\xaeB`\x82")
    with pytest.raises(DiskProblem, match="none/split.png: could not write: No such file or directory"):
        drawing.draw(split, LABELS, tmp_path / "none" / "split.png")


def test_missing_matplotlib_gives_installation_advice(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match="--draw needs matplotlib, which is not installed; install it: pip install"):
        drawing.draw(partition([[0], [4]]), LABELS, tmp_path / "split.png")


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
    assert (above.get_ylabel(), below.get_xlabel(), below.get_ylabel(), bar.get_ylabel()) == (
        "examples",
        "client id",
        "label",
        "share",
    )
    two = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    drawing.draw_into(two, split, *drawing.table(split), "")
    assert len(two.axes) == 2
