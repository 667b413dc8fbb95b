"""Reads targets from arrays: class labels as whole numbers, texts or one-hot rows; numbers; label sets and maps."""

import warnings
from collections.abc import Sequence

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS

LABELS = (
    "whole numbers 0..k-1, texts or one-hot rows, one for each example; numbers to predict need the task regression, "
    'and targets="numbers" in Python'
)
Targets = tuple[np.ndarray, np.ndarray, int, tuple[str, ...] | None]


def read_targets(
    source: str,
    y_train: np.ndarray,
    y_test: np.ndarray,
    classes: int | None,
    names: Sequence[str] | None,
    targets: str = LABEL,
) -> Targets:
    """Return the targets of both splits in the form of `Split.y`, the number of classes, and their names or None.

    Args:
        source, y_train, y_test, classes, names: As for `from_arrays`. Labels may also be `[n, 1]`. Floats that are
            whole numbers raise a warning.
        targets: Form of the targets, see `targets`.
    """
    names = None if names is None else tuple(map(str, names))
    if targets == LABEL:
        return _read_labels(source, {"y_train": y_train, "y_test": y_test}, classes, names)
    if targets not in _READERS:
        raise InputError(f"`targets` must be one of {', '.join((LABEL, *_READERS))}. Received: targets={targets!r}")
    read, expected = _READERS[targets]
    arrays = []
    for name, values in (("y_train", y_train), ("y_test", y_test)):
        values = np.asarray(values)
        array = read(values) if values.size and values.dtype.kind in "biuf" else None
        if array is None:
            raise InputError(f"{source}: {name} must be {expected}. Received: {values.dtype} {values.shape}")
        arrays.append(array)
    train, test = arrays
    counted = train.shape[1]
    if targets == LABEL_MAP:
        counted = int(train.max()) + 1 if names is None else len(names)
    return train, test, classes or counted, names


def infer_form(targets: np.ndarray) -> str:
    """Return the form "numbers" for floats of which some are not whole, else "label".

    Rows of probabilities are labels, which are refused because they are not one-hot.
    """
    values = np.asarray(targets)
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or not np.isfinite(values).all():
        return LABEL
    is_probability = values.ndim == 2 and values.shape[1] > 1 and np.allclose(values.sum(1), 1)
    return NUMBERS if not is_probability and (values != np.round(values)).any() else LABEL


def _numbers(values):
    if values.ndim == 1:
        values = values[:, None]
    with np.errstate(over="ignore"):
        return values.astype(np.float32) if values.ndim == 2 else None


def _label_sets(values):
    return values.astype(bool) if values.ndim == 2 and np.isin(values, (0, 1)).all() else None


def _label_maps(values):
    if values.ndim == 4 and values.shape[-1] == 1:
        values = values[..., 0]
    is_map = values.ndim == 3 and values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 2**31 - 1
    return values.astype(np.int32) if is_map else None


_READERS = {
    NUMBERS: (_numbers, "finite numbers [n] or [n, targets]"),
    LABEL_SET: (_label_sets, "0 and 1, or bool, [n, labels]"),
    LABEL_MAP: (_label_maps, "whole numbers from 0, [n, height, width]"),
}


def _read_labels(source, arrays, classes, names):
    arrays = {name: _decode_texts(np.asarray(values)) for name, values in arrays.items()}
    train = arrays["y_train"]
    if names is None and train.dtype.kind == "U":
        names = tuple(np.unique(train).tolist())
    train_labels, test_labels = (_to_labels(source, name, array, names) for name, array in arrays.items())
    if classes is None and names is not None:
        classes = len(names)
    if classes is None and train.dtype == bool and train.ndim == 1:
        classes = 2
    if classes is None:
        classes = train.shape[1] if train.ndim == 2 else _count_classes(source, train_labels)
    for name, array in arrays.items():
        if array.ndim == 2 and array.shape[1] != classes:
            raise InputError(
                f"{source}: {name} must have one column for each of the {classes} classes. Received: {array.shape}"
            )
    return train_labels, test_labels, classes, names


def _decode_texts(values):
    """Return labels without an axis of length 1; texts have the dtype of NumPy's str."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind not in "OSTU" or values.ndim != 1 or values.size == 0:
        return values
    texts = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values.tolist()]
    return np.array(texts) if all(isinstance(text, str) for text in texts) else values


def _to_labels(source, name, values, names):
    if values.dtype.kind == "U" and values.ndim == 1 and names is not None:
        unknown = values[~np.isin(values, list(names))]
        if unknown.size:
            raise InputError(
                f"{source}: every label of {name} must be one of the classes, which are class_names or the labels of "
                f"y_train. Received: {shorten_repr(str(unknown[0]), 80)}"
            )
        index = {label: number for number, label in enumerate(names)}
        return np.array([index[text] for text in values.tolist()], np.int32)
    if values.ndim == 2 and values.dtype.kind in "biuf" and values.size:
        wrong = np.flatnonzero(~np.isin(values, (0, 1)).all(1) | (values.sum(1) != 1))
        if wrong.size:
            raise InputError(
                f"{source}: {name} must be one-hot, with exactly one 1 in each row and else 0; for several labels, use "
                f"the task multi_label. Received: {shorten_repr(values[wrong[0]].tolist(), 80)} in row {wrong[0]}"
            )
        return values.argmax(1).astype(np.int32)
    if values.dtype == bool:
        values = values.astype(np.int32)
    is_float = values.dtype.kind == "f" and values.size > 0
    if is_float and (np.isfinite(values) & (values == np.round(values))).all():
        warnings.warn(
            f"{source}: {name} has {values.dtype} numbers that are all whole; they become class labels", stacklevel=6
        )
        values = values.astype(np.int64)
    return to_integers(source, name, LABELS, values)


def to_integers(source: str, name: str, expected: str, values: np.ndarray) -> np.ndarray:
    """Return labels or owners as int32 `[n]`; `InputError` says what is expected if they are not whole numbers."""
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.ndim != 1 or values.size == 0 or values.max() >= 2**31 - 1:
        raise InputError(f"{source}: {name} must be {expected}. Received: {values.dtype} {values.shape}")
    return values.astype(np.int32)


def _count_classes(source, labels):
    # A stray label such as 255 would give the model 256 outputs; unused labels need an explicit `classes`.
    seen = np.unique(labels)
    if seen[-1] != len(seen) - 1:
        raise InputError(
            f"{source}: y_train must contain every label from 0 to its highest, {seen[-1]}; renumber the labels or set "
            "`classes`"
        )
    return len(seen)
