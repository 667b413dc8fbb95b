"""The picture of a split, pixel by pixel where it matters."""

import numpy as np
import pytest

from hetero_tf.base.errors import DiskProblem
from hetero_tf.partitions import picture
from hetero_tf.partitions.partition import Partition, label_mask
from hetero_tf.partitions.shares import Shares

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 2], np.int32)
TOP = 2 * picture.GAP + picture.BARS
FULL, WHITE = picture.FULL.astype(int).tolist(), [255, 255, 255]


def partition(lists, labels=LABELS, classes=3):
    train = Shares.from_lists(np.array(own, np.int32) for own in lists)
    return Partition(train, Shares.empty(len(lists)), label_mask(labels, train, classes))


def cell(pixels, clients, classes, client, label):
    """The colour in the middle of a client's cell of a label."""
    wide, high = picture.WIDTH // clients, picture.HEIGHT // classes
    return pixels[TOP + label * high + high // 2, picture.MARGIN + client * wide + wide // 2].tolist()


def test_cells_are_as_dark_as_the_root_of_the_share():
    pixels = picture.paint(partition([[0, 1, 2, 3], [4, 5, 6, 7]]), LABELS)
    half = np.round(255 + np.sqrt(0.5) * (picture.FULL - 255)).astype(int).tolist()
    assert pixels.dtype == np.uint8 and pixels.shape[2] == 3
    assert [cell(pixels, 2, 3, 0, label) for label in range(3)] == [half, half, WHITE]
    assert [cell(pixels, 2, 3, 1, label) for label in range(3)] == [WHITE, WHITE, FULL]


def test_bars_are_as_high_as_the_sizes():
    pixels = picture.paint(partition([[0], [1, 2, 3, 4], [5, 6], [7]]), LABELS)
    middle = picture.MARGIN + picture.WIDTH // 4 * np.arange(4) + picture.WIDTH // 8
    bars = (pixels[picture.GAP : picture.GAP + picture.BARS, middle] == FULL).all(axis=2).sum(axis=0)
    assert bars.tolist() == [25, 100, 50, 25]


def test_neighbours_share_columns_and_rows_where_there_are_too_many():
    many = 3 * picture.COLUMNS + 7
    labels = np.arange(2 * many, dtype=np.int32) % 1000
    train = Shares.from_sizes(np.arange(2 * many, dtype=np.int32), np.full(many, 2))
    pixels = picture.paint(Partition(train, Shares.empty(many), np.ones((many, 1000), bool)), labels)
    assert pixels.shape == (picture.BARS + picture.HEIGHT + 4 * picture.GAP, picture.WIDTH + 2 * picture.MARGIN, 3)
    bars = pixels[picture.GAP + 1 : picture.GAP + picture.BARS, picture.MARGIN : -picture.MARGIN]
    assert (bars == FULL).all()


def test_numbers_are_written_with_their_digits():
    canvas = np.full((12, 40, 3), 255.0)
    picture._number(canvas, 17, 1, 36, right=True)
    dark = (canvas != 255).all(axis=2)[1:11:2, 20:36:2]
    assert ["".join(" #"[int(on)] for on in line) for line in dark] == [
        " #  ### ",
        "##    # ",
        " #    # ",
        " #    # ",
        "###   # ",
    ]
    picture._number(canvas, 10**9, 1, 20, right=True)
    picture._number(canvas, 8, 1, 38)


def test_a_png_file_comes_back_as_it_was_painted(tmp_path):
    tf = pytest.importorskip("tensorflow")
    found = partition([[0, 1, 2, 3], [4, 5, 6, 7]])
    picture.draw(found, LABELS, tmp_path / "split.png")
    read = tf.io.decode_png((tmp_path / "split.png").read_bytes()).numpy()
    np.testing.assert_array_equal(read, picture.paint(found, LABELS))
    with pytest.raises(DiskProblem, match="none/split.png: could not write the picture: No such file or directory"):
        picture.draw(found, LABELS, tmp_path / "none" / "split.png")
