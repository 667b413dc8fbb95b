"""Loads images of the user from a folder of NumPy .npy files, which may exceed memory."""

import dataclasses
from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.data_files import find_folder
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.in_memory import from_arrays
from hetero_tf.data.npz import NAMES, OWNERS


def load(data_dir: Path | None, *, path: str, classes: Count | None = None) -> Dataset:
    """Loads images and labels from the files x_train.npy, y_train.npy, x_test.npy and y_test.npy of a folder.

    Images are uint8 `[n, height, width]` or `[n, height, width, channels]` and stay on disk: each round reads only the
    images of its active clients. Labels are integers `[n]`. The optional files train_owners.npy and test_owners.npy,
    integers `[n]`, name the natural client of each image, such as a writer.

    Args:
        path: the folder
        classes: number of classes; null: the highest training label plus one, and each label must occur
    """
    folder = find_folder(data_dir, path, "path")
    arrays = [_open_images(folder, name) if name.startswith("x") else _read_integers(folder, name) for name in NAMES]
    owners = {name: _read_integers(folder, name) for name in OWNERS if (folder / f"{name}.npy").exists()}
    return from_arrays(*arrays, **owners, classes=classes, source=f"images that stay on disk ({folder})")


def _open(folder, name):
    if not (folder / f"{name}.npy").exists():
        raise InputError(f"{folder}: expected the files {', '.join(f'{each}.npy' for each in NAMES)}. Missing: {name}")
    return DiskArray.open(folder / f"{name}.npy")


def _read_integers(folder, name):
    """Reads labels or owners into memory."""
    array = _open(folder, name)
    check_memory(array.path, array.nbytes)
    return array[:]


def _open_images(folder, name):
    """Opens images and adds a channel axis if needed."""
    x = _open(folder, name)
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise InputError(
            f"{folder / name}.npy: must be uint8 [n, height, width] or [n, height, width, channels] in 0..255. "
            f"Received: {x.dtype} {x.shape}"
        )
    return dataclasses.replace(x, row=(*x.row, 1)) if x.ndim == 3 else x
