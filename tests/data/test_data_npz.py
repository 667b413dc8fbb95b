"""A person's own .npz file of images: what is taken, what is converted, what is refused."""

import numpy as np
import pytest

from hetero_tf.base.errors import InputError
from hetero_tf.data import npz
from hetero_tf.data.dataset import NotAvailable

GOOD = {
    "x_train": np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.zeros((2, 4, 5), np.uint8),
    "y_test": np.array([2, 0], np.uint8),
}


def load(folder, classes=None, **changed):
    np.savez(folder / "own.npz", **(GOOD | changed))
    return npz.load(folder, path="own.npz", classes=classes)


def test_images_get_a_channel_axis_and_labels_become_int32(tmp_path):
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.train.x, GOOD["x_train"][..., None])
    assert dataset.test.y.dtype == np.int32
    assert dataset.test.y.tolist() == [2, 0]
    assert dataset.classes == 3
    assert load(tmp_path, classes=7).classes == 7


def test_floats_in_0_1_become_bytes(tmp_path):
    x = np.array([0, 1, 0.5, 1 / 255], np.float32).reshape(1, 2, 2)
    dataset = load(tmp_path, x_test=x, y_test=np.array([1]), x_train=GOOD["x_train"][:, :2, :2])
    assert dataset.test.x.reshape(-1).tolist() == [0, 255, 128, 1]


def with_pixel(value):
    x = np.zeros((6, 4, 5))
    x[1, 2, 3] = value
    return x


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x_train": with_pixel(np.nan)}, r"x_train as floats must be in \[0, 1\]. Received: nan at \(1, 2, 3, 0\)"),
        ({"x_train": with_pixel(np.inf)}, r"x_train as floats must be in \[0, 1\]. Received: inf at"),
        ({"x_train": with_pixel(-0.1)}, r"Received: -0.1 at \(1, 2, 3, 0\); scale the images"),
        ({"x_train": with_pixel(200.0)}, r"Received: 200.0 at"),
        (
            {"x_train": GOOD["x_train"].astype(np.int64)},
            r"x_train must be uint8 in 0..255 .* Received: int64; convert it",
        ),
        ({"x_train": GOOD["x_train"] > 3}, r"Received: bool; convert it"),
        ({"x_train": GOOD["x_train"].astype("U3")}, r"Received: <U3; convert it"),
        ({"x_train": GOOD["x_train"][0, 0]}, r"must have shape \[n, height, width\] .* Received: \(5,\)"),
        ({"x_train": GOOD["x_train"][:0]}, r"all dimensions above 0. Received: \(0, 4, 5, 1\)"),
        ({"x_train": GOOD["x_train"].astype(object)}, r"contains Python objects"),
        (
            {"y_train": np.full(6, 0.5)},
            r"y_train must be whole numbers 0..k-1, texts or one-hot rows, .* Received: float64 \(6,\)",
        ),
        (
            {"y_train": np.zeros((6, 1, 1), int)},
            r"y_train must be whole numbers 0..k-1, texts or one-hot rows, .* Received: int64 \(6, 1, 1\)",
        ),
        ({"y_train": np.array([0, 1, 2, 0, 1, -1])}, r"y_train must be in 0..2147483646. Received: label -1"),
        (
            {"y_train": np.array([0, 1, 2, 0, 1, 2**40])},
            r"y_train must be in 0..2147483646. Received: label 1099511627776",
        ),
        ({"y_train": np.array([0, 1, 2, 0, 1])}, r"one entry per example. Received: 6 examples, 5 labels"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 255])}, r"every label from 0 to its highest, 255, but 3 never occurs"),
        ({"y_train": np.array([1, 2, 3, 1, 2, 3])}, r"its highest, 3, but 0 never occurs; renumber the labels"),
        ({"y_test": np.array([0, 3])}, r"test split: every label must be in 0..2. Received: 3 at position 1"),
        ({"x_test": GOOD["x_test"][:, :3]}, r"must have the same shape. Received: \(4, 5, 1\) and \(3, 5, 1\)"),
        ({"classes": 2}, r"every label must be in 0..1. Received: 2 at position 2"),
        ({"train_owners": np.arange(5)}, r"expected owners int32 \[6\], one per example. Received: int32 \(5,\)"),
        ({"train_owners": np.zeros(6)}, r"train_owners must be integers \[n\]. Received: float64 \(6,\)"),
        ({"train_owners": np.array([0, 1, -2, 0, 0, 0])}, r"train_owners must be in 0..2147483646. Received: owner -2"),
    ],
)
def test_invalid_arrays_are_rejected(tmp_path, changed, message):
    with pytest.raises(InputError, match=message) as refusal:
        load(tmp_path, **changed)
    assert str(tmp_path / "own.npz") in str(refusal.value)


def test_missing_file_lists_searched_paths(tmp_path):
    with pytest.raises(
        NotAvailable, match=f"`path` must name an existing file. Received: path='no.npz'; searched: {tmp_path}/no.npz, "
    ):
        npz.load(tmp_path, path="no.npz")


def test_owners_are_read_if_present(tmp_path):
    assert load(tmp_path).train.owners is None
    dataset = load(tmp_path, train_owners=np.array([4, 0, 0, 2, 4, 4], np.int64))
    assert dataset.train.owners.dtype == np.int32 and dataset.train.owners.tolist() == [4, 0, 0, 2, 4, 4]
    assert dataset.test.owners is None
    assert load(tmp_path, test_owners=np.array([1, 0])).test.owners.tolist() == [1, 0]
