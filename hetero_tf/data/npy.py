"""A person's own images in a folder of NumPy .npy files, which may be larger than memory."""

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

NAMES = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("train_owners", "test_owners")


def load(data_dir: Path | None, *, path: str, classes: Count | None = None) -> Dataset:
    """Loads images and labels from the files x_train.npy, y_train.npy, x_test.npy and y_test.npy of a folder.

    Images are uint8 `[n, height, width]` or `[n, height, width, channels]` and stay on disk: each round reads those of
    its active clients only. Labels are integers `[n]`, and so are train_owners.npy and test_owners.npy, which may be
    there to say from which natural client, such as a writer, each image comes.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the folder
        classes: number of labels; null: the highest training label plus one, and each must occur

    Raises:
        NotAvailable: There is no such folder.
        InputError: A file is missing, damaged, or has a wrong dtype, shape or value.
        MemoryProblem: Labels do not fit into memory.
    """
    folder = find_folder(data_dir, path, "path")
    arrays = [_images(folder, name) if name.startswith("x") else _whole(folder, name) for name in NAMES]
    owners = {name: _whole(folder, name) for name in OWNERS if (folder / f"{name}.npy").exists()}
    return from_arrays(*arrays, **owners, classes=classes, source=f"images that stay on disk ({folder})")


def _file(folder, name):
    if not (folder / f"{name}.npy").exists():
        raise InputError(f"{folder}: expected the files {', '.join(f'{each}.npy' for each in NAMES)}. Missing: {name}")
    return DiskArray.open(folder / f"{name}.npy")


def _whole(folder, name):
    """Labels or owners, which are held in memory."""
    array = _file(folder, name)
    check_memory(array.path, array.nbytes)
    return array[:]


def _images(folder, name):
    """Images with an axis of channels."""
    x = _file(folder, name)
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise InputError(
            f"{folder / name}.npy: must be uint8 [n, height, width] or [n, height, width, channels] in 0..255. "
            f"Received: {x.dtype} {x.shape}"
        )
    return dataclasses.replace(x, row=(*x.row, 1)) if x.ndim == 3 else x
