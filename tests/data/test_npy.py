"""A folder of .npy files: images that stay on disk, and what is refused."""

import numpy as np
import pytest

from hetero_tf.base.errors import InputError, MemoryProblem
from hetero_tf.data import npy, npz
from hetero_tf.data.dataset import NotAvailable
from hetero_tf.data.disk_array import DiskArray

GOOD = {
    "x_train": np.arange(6 * 4 * 5, dtype=np.uint8).reshape(6, 4, 5),
    "y_train": np.array([0, 1, 2, 0, 1, 2]),
    "x_test": np.zeros((2, 4, 5), np.uint8),
    "y_test": np.array([2, 0], np.uint8),
}


def load(folder, classes=None, **changed):
    (folder / "own").mkdir(exist_ok=True)
    for name, array in (GOOD | changed).items():
        np.save(folder / "own" / f"{name}.npy", array)
    return npy.load(folder, path="own", classes=classes)


def test_folder_equals_npz_file_of_the_same_arrays(tmp_path):
    owners = {"train_owners": np.array([4, 0, 0, 2, 4, 4]), "test_owners": np.array([1, 0])}
    dataset = load(tmp_path, **owners)
    np.savez(tmp_path / "own.npz", **GOOD, **owners)
    assert isinstance(dataset.train.x, DiskArray) and isinstance(dataset.test.x, DiskArray)
    assert dataset.sha256 == npz.load(tmp_path, path="own.npz").sha256
    assert dataset.source == f"images that stay on disk ({tmp_path / 'own'})"
    assert load(tmp_path, classes=7).classes == 7
    coloured = np.zeros((6, 4, 5, 3), np.uint8)
    assert load(tmp_path, x_train=coloured, x_test=coloured[:2]).train.x.shape == (6, 4, 5, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"x_train": np.zeros((6, 4, 5))},
            r"own/x_train.npy: must be uint8 \[n, height, width\] .* Received: float64 \(6, 4, 5\)",
        ),
        ({"x_test": np.zeros((2, 5), np.uint8)}, r"own/x_test.npy: must be uint8 .* Received: uint8 \(2, 5\)"),
        ({"x_train": np.zeros((0, 4, 5), np.uint8), "y_train": GOOD["y_train"][:0]}, r"y_train must be whole numbers"),
        (
            {"x_train": np.asfortranarray(GOOD["x_train"])},
            r"own/x_train.npy: must contain .* C order; .* Fortran order",
        ),
        ({"y_train": np.array([0, 1, 2, 0, 1, 2.5])}, r"y_train must be whole numbers 0..k-1, .* Received: float64"),
        ({"y_train": np.array([0, 1, 2, 0, 1])}, r"one entry per example. Received: 6 examples, 5 labels"),
        ({"x_test": GOOD["x_test"][:, :3]}, r"must have the same shape. Received: \(4, 5, 1\) and \(3, 5, 1\)"),
        ({"y_train": GOOD["y_train"].astype(object)}, r"own/y_train.npy: must contain numbers .* Received: object"),
    ],
)
def test_invalid_arrays_are_rejected(tmp_path, changed, message):
    if changed.get("y_train", GOOD["y_train"]).dtype == object:
        (tmp_path / "own").mkdir()
        np.save(tmp_path / "own" / "y_train.npy", changed["y_train"], allow_pickle=True)
    with pytest.raises(InputError, match=message) as refusal:
        load(tmp_path, **changed)
    assert str(tmp_path / "own") in str(refusal.value)


def test_labels_must_fit_into_memory_and_may_be_of_any_byte_order(tmp_path, monkeypatch):
    assert load(tmp_path, y_train=GOOD["y_train"].astype(">i8")).train.y.tolist() == [0, 1, 2, 0, 1, 2]
    monkeypatch.setattr("hetero_tf.base.hardware.memory_limit", lambda: 20)
    with pytest.raises(MemoryProblem, match=r"y_train.npy: needs 0.0 GiB, but half of this machine's memory is"):
        load(tmp_path)


def test_truncated_and_a_missing_file_are_named(tmp_path):
    load(tmp_path)
    path = tmp_path / "own" / "x_train.npy"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"own/x_train.npy: must have the size in its header.* Received: 113 bytes"):
        npy.load(tmp_path, path="own")
    path.unlink()
    with pytest.raises(InputError, match=r"own: expected the files x_train.npy, y_train.npy, .* Missing: x_train"):
        npy.load(tmp_path, path="own")
    with pytest.raises(
        InputError, match=r"expected a folder. Received: a file; data: npz reads .npz files, data: npy a folder"
    ):
        npy.load(tmp_path, path="own/y_train.npy")
    with pytest.raises(NotAvailable, match="`path` must name an existing file. Received: path='no'"):
        npy.load(tmp_path, path="no")
