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
    found = load(tmp_path)
    np.testing.assert_array_equal(found.train.x, GOOD["x_train"][..., None])
    assert found.test.y.dtype == np.int32
    assert found.test.y.tolist() == [2, 0]
    assert found.classes == 3
    assert load(tmp_path, classes=7).classes == 7


def test_floats_in_0_1_become_bytes(tmp_path):
    x = np.array([0, 1, 0.5, 1 / 255], np.float32).reshape(1, 2, 2)
    found = load(tmp_path, x_test=x, y_test=np.array([1]), x_train=GOOD["x_train"][:, :2, :2])
    assert found.test.x.reshape(-1).tolist() == [0, 255, 128, 1]


def with_pixel(value):
    x = np.zeros((6, 4, 5))
    x[1, 2, 3] = value
    return x


@pytest.mark.parametrize(
    ("changed", "told"),
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
        ({"x_train": GOOD["x_train"][:0]}, r"none of them 0. Received: \(0, 4, 5, 1\)"),
        ({"x_train": GOOD["x_train"].astype(object)}, r"array 'x_train.npy' holds Python objects"),
        ({"y_train": np.zeros(6)}, r"y_train must be integers of shape \[n\]. Received: float64 \(6,\)"),
        ({"y_train": np.zeros((6, 1), int)}, r"y_train must be integers of shape \[n\]. Received: int64 \(6, 1\)"),
        ({"y_train": np.array([0, 1, 2, 0, 1, -1])}, r"y_train must count from 0. Received: label -1"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2**40])}, r"y_train must count from 0. Received: label 1099511627776"),
        ({"y_train": np.array([0, 1, 2, 0, 1])}, r"one entry per example. Received: 6 examples, 5 labels"),
        ({"y_train": np.array([0, 1, 2, 0, 1, 255])}, r"every label from 0 to its highest, 255, but 3 never occurs"),
        ({"y_train": np.array([1, 2, 3, 1, 2, 3])}, r"its highest, 3, but 0 never occurs; renumber the labels"),
        ({"y_test": np.array([0, 3])}, r"test split: every label must be in 0..2. Received: 3 at position 1"),
        ({"x_test": GOOD["x_test"][:, :3]}, r"must have one shape. Received: \(4, 5, 1\) and \(3, 5, 1\)"),
        ({"classes": 2}, r"every label must be in 0..1. Received: 2 at position 2"),
        ({"train_owners": np.arange(5)}, r"expected owners int32 \[6\], one per example. Received: int32 \(5,\)"),
        ({"train_owners": np.zeros(6)}, r"train_owners must be integers of shape \[n\]. Received: float64 \(6,\)"),
        ({"train_owners": np.array([0, 1, -2, 0, 0, 0])}, r"train_owners must count from 0. Received: owner -2"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changed, told):
    with pytest.raises(InputError, match=told) as refusal:
        load(tmp_path, **changed)
    assert str(tmp_path / "own.npz") in str(refusal.value)


def test_a_missing_file_names_the_places(tmp_path):
    with pytest.raises(
        NotAvailable,
        match=f"`path` must name an existing file. Received: path='no.npz'; there is no {tmp_path}/no.npz or ",
    ):
        npz.load(tmp_path, path="no.npz")


def test_owners_are_taken_where_the_file_has_them(tmp_path):
    assert load(tmp_path).train.owners is None
    found = load(tmp_path, train_owners=np.array([4, 0, 0, 2, 4, 4], np.int64))
    assert found.train.owners.dtype == np.int32 and found.train.owners.tolist() == [4, 0, 0, 2, 4, 4]
    assert found.test.owners is None
    assert load(tmp_path, test_owners=np.array([1, 0])).test.owners.tolist() == [1, 0]
