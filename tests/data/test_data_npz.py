"""A .npz file and a folder of .npy files with images: conversions, images that stay on disk, and refusals."""

import numpy as np
import pytest
from refusals import refusal

from hetero_tf.data import npz
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.disk_array import DiskArray

GOOD = {
    "x_train": np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.zeros((2, 4, 5), np.uint8),
    "y_test": np.array([2, 0], np.uint8),
}


def load(folder, classes=None, **changed):
    np.savez(folder / "own.npz", **(GOOD | changed))
    return npz.load(folder, path="own.npz", classes=classes)


def test_images_get_a_channel_axis_labels_become_int32_and_floats_bytes(tmp_path):
    dataset = load(tmp_path)
    np.testing.assert_array_equal(dataset.train.x, GOOD["x_train"][..., None])
    assert dataset.test.y.dtype == np.int32
    assert dataset.test.y.tolist() == [2, 0]
    assert dataset.classes == 3
    assert load(tmp_path, classes=7).classes == 7
    x = np.array([0, 1, 0.5, 1 / 255], np.float32).reshape(1, 2, 2)
    dataset = load(tmp_path, x_test=x, y_test=np.array([1]), x_train=GOOD["x_train"][:, :2, :2])
    assert dataset.test.x.reshape(-1).tolist() == [0, 255, 128, 1]


def test_owners_are_read_if_present_and_a_missing_file_lists_searched_paths(tmp_path):
    with pytest.raises(NotAvailable, match=f"existing file. Received: path='no.npz'; searched: {tmp_path}/no.npz, "):
        npz.load(tmp_path, path="no.npz")
    assert load(tmp_path).train.owners is None
    dataset = load(tmp_path, train_owners=np.array([4, 0, 0, 2, 4, 4], np.int64))
    assert dataset.train.owners.dtype == np.int32 and dataset.train.owners.tolist() == [4, 0, 0, 2, 4, 4]
    assert dataset.test.owners is None
    message = f"{tmp_path}/own.npz): train_owners must be integers [n] from 0. Received: float64 (6,)"
    assert message in refusal(load, tmp_path, train_owners=np.zeros(6))
    assert load(tmp_path, test_owners=np.array([1, 0])).test.owners.tolist() == [1, 0]


def load_folder(folder, classes=None, **changed):
    (folder / "own").mkdir(exist_ok=True)
    for name, array in (GOOD | changed).items():
        np.save(folder / "own" / f"{name}.npy", array)
    return npz.load(folder, path="own", classes=classes)


def test_folder_equals_npz_file_of_the_same_arrays(tmp_path):
    owners = {"train_owners": np.array([4, 0, 0, 2, 4, 4]), "test_owners": np.array([1, 0])}
    dataset = load_folder(tmp_path, **owners, y_train=GOOD["y_train"].astype(">i8"))
    assert isinstance(dataset.train.x, DiskArray) and isinstance(dataset.test.x, DiskArray)
    assert dataset.sha256 == load(tmp_path, **owners).sha256
    assert dataset.source == f"images that stay on disk ({tmp_path / 'own'})"
    assert load_folder(tmp_path, classes=7).classes == 7
    coloured = np.zeros((6, 4, 5, 3), np.uint8)
    assert load_folder(tmp_path, x_train=coloured, x_test=coloured[:2]).train.x.shape == (6, 4, 5, 3)


def test_invalid_files_of_a_folder_are_rejected(tmp_path):
    load_folder(tmp_path)
    for changed, message in (
        ({"x_train": np.zeros((6, 4, 5))}, "own/x_train.npy: must be images uint8 in 0..255. Received: float64"),
        (
            {"x_train": np.asfortranarray(GOOD["x_train"])},
            "own/x_train.npy: must contain numbers with at least one axis in C",
        ),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2.5])}, "own): y_train must be whole numbers 0..k-1, "),
        ({"y_train": GOOD["y_train"].astype(object)}, "own/y_train.npy: cannot be read as a .npy file of"),
    ):
        assert message in refusal(load_folder, tmp_path, **changed)
    (tmp_path / "own" / "x_train.npy").unlink()
    message = "own: expected the files x_train.npy, y_train.npy, x_test.npy, y_test.npy. Missing: x_train"
    assert message in refusal(npz.load, tmp_path, path="own")
