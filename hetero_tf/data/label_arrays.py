"""Reads targets from arrays: class labels as whole numbers, texts or one-hot rows; numbers; label sets and maps."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS


@dataclass(frozen=True)
class TargetArrays:
    """Targets of both splits.

    Attributes:
        train, test: Labels int32 `[n]` from 0, or another form of `targets`.
        classes: Number of classes, or of targets.
        names: Name of each class or target; None if unknown.
    """

    train: np.ndarray
    test: np.ndarray
    classes: int
    names: tuple[str, ...] | None


def read_targets(
    source: str,
    y_train: np.ndarray,
    y_test: np.ndarray,
    classes: int | None,
    names: Sequence[str] | None,
    targets: str = LABEL,
) -> TargetArrays:
    """Read the targets of both splits.

    Args:
        source, y_train, y_test, classes, names: As for `from_arrays`.
        targets: Form of the targets, see `targets`.

    Raises:
        InputError: An array has a wrong dtype, shape or value.
    """
    if isinstance(y_train, Mapping):
        raise InputError(
            f"{source}: y_train must be one array, since a model has one output; give several numbers as [n, targets] "
            f"for the task regression, else train a model for each. Received: a dictionary of {', '.join(y_train)}"
        )
    if targets == LABEL:
        return read_labels(source, y_train, y_test, classes, names)
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
    if targets == LABEL_MAP:
        counted = int(train.max()) + 1 if names is None else len(names)
    else:
        counted = train.shape[1]
    return TargetArrays(train, test, classes or counted, None if names is None else tuple(map(str, names)))


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


def read_labels(
    source: str, y_train: np.ndarray, y_test: np.ndarray, classes: int | None, names: Sequence[str] | None
) -> TargetArrays:
    """Read the labels of both splits.

    Args:
        source, classes, names: As for `from_arrays`.
        y_train, y_test: The same, also `[n, 1]`. Floats that are whole numbers raise a warning.

    Raises:
        InputError: An array has a wrong dtype, shape or value, or its labels are not among the names.
    """
    arrays = {"y_train": _read_array(source, "y_train", y_train), "y_test": _read_array(source, "y_test", y_test)}
    train = arrays["y_train"]
    if names is None and train.dtype.kind == "U":
        names = np.unique(train).tolist()
    names = None if names is None else tuple(map(str, names))
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
    return TargetArrays(train_labels, test_labels, classes, names)


def _read_array(source, name, values):
    """Return labels as an array without an axis of length 1; texts have the dtype of NumPy's str."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind not in "OSTU" or values.ndim != 1 or values.size == 0:
        return values
    texts = []
    for index, value in enumerate(values.tolist()):
        try:
            text = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            text = None
        if not isinstance(text, str):
            raise InputError(
                f"{source}: {name} must be whole numbers or valid Unicode texts. "
                f"Received: {shorten_repr(value, 80)} at position {index}"
            )
        texts.append(text)
    return np.array(texts)


def _to_labels(source, name, values, names):
    """Return labels int32 `[n]`."""
    if values.dtype.kind == "U" and values.ndim == 1:
        return _index_texts(source, name, values, names)
    if values.ndim == 2 and values.dtype.kind in "biuf" and values.size:
        return _decode_one_hot(source, name, values)
    if values.ndim == 1 and values.dtype == bool:
        values = values.astype(np.int32)
    is_float = values.dtype.kind == "f" and values.ndim == 1 and values.size > 0
    if is_float and (np.isfinite(values) & (values == np.round(values))).all():
        warnings.warn(
            f"{source}: {name} has {values.dtype} numbers that are all whole; they become class labels", stacklevel=5
        )
        values = values.astype(np.int64)
    return to_integers(source, name, "label", values)


def _index_texts(source, name, texts, names):
    """Return the index of each text in the names."""
    if names is None:
        raise InputError(
            f"{source}: {name} must be numbers, as y_train is, or set class_names. Received: texts such as "
            f"{shorten_repr(str(texts[0]), 80)}"
        )
    index_by_name = {label: index for index, label in enumerate(names)}
    unknown = np.flatnonzero(~np.isin(texts, list(names)))
    if unknown.size:
        known = "class_names" if name == "y_train" else "the classes, which are class_names or the labels of y_train"
        raise InputError(
            f"{source}: every label of {name} must be one of {known}. "
            f"Received: {shorten_repr(str(texts[unknown[0]]), 80)} at position {unknown[0]}"
        )
    return np.array([index_by_name[text] for text in texts.tolist()], np.int32)


def _decode_one_hot(source, name, rows):
    """Return the column of the only 1 of each row."""
    wrong = np.flatnonzero(~((rows == 0) | (rows == 1)).all(1) | ((rows == 1).sum(1) != 1))
    if wrong.size:
        raise InputError(
            f"{source}: {name} must be one-hot, with exactly one 1 in each row and else 0; for several labels, use the "
            f"task multi_label. Received: {shorten_repr(rows[wrong[0]].tolist(), 80)} in row {wrong[0]}"
        )
    return rows.argmax(1).astype(np.int32)


def to_integers(source: str, name: str, item: str, values: np.ndarray) -> np.ndarray:
    """Convert labels or owners to int32 `[n]`.

    Args:
        source, name: Prefix of error messages, and the name of the array in them.
        item: "label" or "owner".
        values: Whole numbers `[n]` from 0.

    Raises:
        InputError: The array has a wrong dtype, shape or value.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iu" or values.ndim != 1 or values.size == 0:
        allowed = (
            "whole numbers 0..k-1, texts or one-hot rows, one for each example (task classification)"
            if item == "label"
            else "integers [n]"
        )
        raise InputError(f"{source}: {name} must be {allowed}. Received: {values.dtype} {values.shape}")
    if values.min() < 0 or values.max() >= 2**31 - 1:
        invalid = values.min() if values.min() < 0 else values.max()
        raise InputError(f"{source}: {name} must be in 0..{2**31 - 2}. Received: {item} {invalid}")
    return values.astype(np.int32)


def _count_classes(source, labels):
    # A stray label such as 255 would give the model 256 outputs; unused labels need an explicit `classes`.
    seen = np.unique(labels)
    if seen[-1] != len(seen) - 1:
        missing = int(np.flatnonzero(seen != np.arange(len(seen)))[0])
        raise InputError(
            f"{source}: y_train must contain every label from 0 to its highest, {seen[-1]}, but {missing} never "
            "occurs; renumber the labels or set `classes`"
        )
    return len(seen)
