"""A person's own images or table in a NumPy .npz file."""

from pathlib import Path

import numpy as np

from hetero_tf.base.constraints import Count
from hetero_tf.base.errors import BadInput
from hetero_tf.base.npz import array_names, read_arrays
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.files import find

NAMES = ("x_train", "y_train", "x_test", "y_test")
OWNERS = ("train_owners", "test_owners")


def load(data_dir: Path | None, *, path: str, classes: Count | None = None) -> Dataset:
    """Loads examples and labels from the arrays x_train, y_train, x_test and y_test.

    Images are uint8 `[n, height, width]` or `[n, height, width, channels]`. Floats are taken only if all of
    them are in [0, 1], and become round(255 * x). Rows of a table are numbers `[n, features]`. Labels are integers
    `[n]`. Where examples come from natural clients, such as writers, the arrays train_owners and test_owners, integers
    `[n]` from 0, say from which; either may be left out.

    Args:
        data_dir: Folder in which a relative path is looked for first, then the working folder; None: only the latter.
        path: the .npz file
        classes: number of labels; null: the highest training label plus one, and each must occur

    Raises:
        NotAvailable: The file is missing.
        BadInput: The file or an array is damaged or has a wrong dtype, shape or value.
        MemoryProblem: The arrays do not fit into memory.
    """
    file = find(data_dir, path, "path")
    data = read_arrays(file, [*NAMES, *(set(OWNERS) & set(array_names(file)))])
    train, test = (_split(file, data, part) for part in ("train", "test"))
    for part, split in (("train", train), ("test", test)):
        if len(split.x) != len(split.y):
            raise BadInput(
                f"{file}: x_{part} and y_{part} must have one entry per example. "
                f"Received: {len(split.x)} examples, {len(split.y)} labels"
            )
    what = "images" if train.x.ndim == 4 else "table"
    return Dataset(train, test, _count(file, train.y) if classes is None else classes, f"{what} ({file})")


def _split(file, data, part):
    owners = data.get(f"{part}_owners")
    if owners is not None:
        owners = _labels(file, f"{part}_owners", owners)
    x = data[f"x_{part}"]
    x = (_rows if x.ndim == 2 else _images)(file, f"x_{part}", x)
    return Split(x, _labels(file, f"y_{part}", data[f"y_{part}"]), owners)


def _rows(file, name, x):
    if x.dtype.kind not in "iufb" or x.size == 0:
        raise BadInput(f"{file}: {name} must hold numbers [n, features], none of them 0. Received: {x.dtype} {x.shape}")
    with np.errstate(over="ignore"):
        rows = x.astype(np.float32)
    if not np.isfinite(rows).all():
        row, feature = np.argwhere(~np.isfinite(rows))[0]
        raise BadInput(
            f"{file}: {name} must hold finite numbers that float32 can hold. "
            f"Received: {x[row, feature]} in row {row}, feature {feature}"
        )
    return rows


def _images(file, name, x):
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.size == 0:
        raise BadInput(
            f"{file}: {name} must have shape [n, height, width] or [n, height, width, channels] for images, "
            f"or [n, features] for a table, none of them 0. Received: {x.shape}"
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise BadInput(
            f"{file}: {name} must be uint8 in 0..255 (or floats in [0, 1]). Received: {x.dtype}; "
            f"convert it with {name}.astype('uint8')"
        )
    wrong = ~((x >= 0) & (x <= 1))
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise BadInput(
            f"{file}: {name} as floats must be in [0, 1]. Received: {x[index]} at {index}; "
            "scale the images or store uint8 in 0..255"
        )
    return np.round(x * 255).astype(np.uint8)


def _labels(file, name, y):
    if y.dtype.kind not in "iu" or y.ndim != 1 or y.size == 0:
        raise BadInput(f"{file}: {name} must be integers of shape [n]. Received: {y.dtype} {y.shape}")
    if y.min() < 0 or y.max() >= 2**31 - 1:
        wrong = y.min() if y.min() < 0 else y.max()
        raise BadInput(f"{file}: {name} must count from 0. Received: {'label' if name in NAMES else 'owner'} {wrong}")
    return y.astype(np.int32)


def _count(file, labels):
    # A stray label such as 255 would make a model of 256 outputs; only `classes` may ask for unused ones.
    seen = np.unique(labels)
    if seen[-1] != len(seen) - 1:
        missing = int(np.flatnonzero(seen != np.arange(len(seen)))[0])
        raise BadInput(
            f"{file}: y_train must use every label from 0 to its highest, {seen[-1]}, but {missing} never "
            "occurs; renumber the labels or give `classes`"
        )
    return len(seen)
