"""Loads images, a table, series or several arrays of the user from a NumPy .npz file, or images from .npy files."""

import dataclasses
import itertools
from pathlib import Path
from typing import Literal

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.npz_reader import array_names, read_arrays
from hetero_tf.data.data_files import LOADERS, find
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.in_memory import from_arrays
from hetero_tf.data.targets import LABEL

NAMES = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("train_owners", "test_owners")
TEXTS = ("class_names", "feature_names")


def load(
    data_dir: Path | None,
    *,
    path: str,
    classes: Count | None = None,
    kind: Literal["images", "series", "table"] | None = None,
    targets=LABEL,
) -> Dataset:
    """Load examples and labels from the arrays x_train, y_train, x_test and y_test.

    Images are uint8 `[n, height, width]` or `[n, height, width, channels]`. Floats must be in [0, 1] and become
    round(255 * x). Table rows are numbers `[n, features]`. Series, with `kind: series`, are numbers `[n, time]` or `[n,
    time, channels]`. Several arrays of an example are x_train.NAME and x_test.NAME, see `from_arrays`. Labels are whole
    numbers `[n]` from 0, bool or texts `[n]`, or one-hot rows `[n, classes]`; for the task regression, numbers `[n]` or
    `[n, targets]`; for multi_label, 0 and 1 `[n, labels]`; for segmentation, whole numbers `[n, height, width]`.
    Optional arrays: train_owners and test_owners, integers `[n]` from 0, name the client of each example, such as a
    writer; the texts class_names `[classes]` and feature_names `[features]` name the labels and the columns of a table
    or channels of series.

    A folder with the files x_train.npy, y_train.npy, x_test.npy and y_test.npy, and perhaps those of owners, has uint8
    images. They stay on disk: each round reads only the images of its active clients.

    Args:
        path: the .npz file, or the folder of .npy files
        classes: number of classes; null: the number of class_names, of different texts or of one-hot columns, else the
            highest training label plus one, and each label must occur
        kind: images, table or series (such as measurements over time); null: a table for two axes, else images
    """
    file = find(data_dir, path, "path")
    if file.is_dir():
        arrays = [_open(file, name) for name in NAMES]
        owners = {name: _open(file, name) for name in OWNERS if (file / f"{name}.npy").exists()}
        source = f"images that stay on disk ({file})"
        return from_arrays(*arrays, **owners, classes=classes, source=source, targets=targets)
    stored = array_names(file)
    parts = {name: [part for part in stored if part.startswith(f"{name}.")] or [name] for name in NAMES}
    names = [*itertools.chain.from_iterable(parts.values()), *({*OWNERS, *TEXTS} & set(stored))]
    data = read_arrays(file, names)
    arrays = [
        data[name] if parts[name] == [name] else {part.removeprefix(f"{name}."): data[part] for part in parts[name]}
        for name in NAMES
    ]
    is_table = isinstance(arrays[0], np.ndarray) and arrays[0].ndim == 2
    example_kind = "arrays" if isinstance(arrays[0], dict) else kind or ("table" if is_table else "images")
    named: dict = {name: data.get(name) for name in (*OWNERS, *TEXTS)}
    return from_arrays(*arrays, **named, classes=classes, source=f"{example_kind} ({file})", targets=targets, kind=kind)


def _open(folder, name):
    """Open examples, with an axis of channels; read labels and owners."""
    if not (folder / f"{name}.npy").exists():
        files = ", ".join(f"{each}.npy" for each in NAMES)
        raise InputError(f"{folder}: expected the files {files}. Missing: {name}; {LOADERS}")
    array = DiskArray.open(folder / f"{name}.npy")
    if name.startswith("x"):
        if array.dtype != np.uint8:
            raise InputError(f"{array.path}: must be images uint8 in 0..255. Received: {array.dtype} {array.shape}")
        return dataclasses.replace(array, row=(*array.row, 1)) if array.ndim == 3 else array
    check_memory(array.path, array.nbytes)
    return array[:]
