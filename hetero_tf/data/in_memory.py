"""Builds a validated `Dataset` from arrays or `tf.data.Dataset`s in memory."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.fields import array_fields
from hetero_tf.data.label_arrays import read_targets, to_integers
from hetero_tf.data.targets import LABEL

if TYPE_CHECKING:
    import tensorflow as tf
from typing import Any

from hetero_tf.base.errors import shorten_repr
from hetero_tf.data.codecs import Field, raw

SERIES_ADVICE = "; for series [n, time, channels], set `kind: series`"


def from_arrays(
    x_train: np.ndarray | DiskArray | Mapping[str, np.ndarray],
    y_train: np.ndarray,
    x_test: np.ndarray | DiskArray | Mapping[str, np.ndarray],
    y_test: np.ndarray,
    *,
    train_owners: np.ndarray | None = None,
    test_owners: np.ndarray | None = None,
    classes: int | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    source: str = "arrays",
    targets: str = LABEL,
    kind: Literal["audio", "images", "series", "table"] | None = None,
    rate: int | None = None,
) -> Dataset:
    """Build a data set of images, table rows, series, audio, or examples of several arrays.

    Args:
        x_train, x_test: Images uint8 `[n, height, width]` or `[n, height, width, channels]`, or floats in [0, 1], which
            become round(255 * x); or table rows `[n, features]`, which become float32; or with `kind="series"` numbers
            `[n, time]` or `[n, time, channels]`, which become float32; or with `kind="audio"` clips `[n, samples]`,
            int16 or floats in -1..1, which become int16; or images uint8 `[n, height, width, channels]`
            as a `DiskArray`, which stay on disk; or a dictionary of arrays `[n, ...]`, the inputs of a model by name:
            floats, uint8 pixels, or other whole numbers, which are ids of words or categories.
        y_train, y_test: Labels: whole numbers `[n]` from 0, bool `[n]`, texts `[n]`, or one-hot rows `[n, classes]`.
        train_owners, test_owners: Natural client of each example, integers `[n]` from 0.
        classes: Number of classes; None: the number of `class_names`, of different texts or of one-hot columns, 2 for
            bool, else the highest training label plus one, and each label must occur.
        class_names: Names of the labels in order; None: the training texts in sorted order, if the labels are texts.
        feature_names: Names of the features of a table, or of the channels of series, in order.
        source: One-line description of the data; the prefix of every error message.
        targets: Form of `y_train` and `y_test`: "label"; "numbers" `[n]` or `[n, targets]` for the task regression;
            "label_set", bool or 0 and 1 `[n, labels]`, for multi_label; "label_map", whole numbers `[n, height,
            width]`, for segmentation. `class_names` then name the targets, and `classes` is their number.
        kind: "images", "table", "series" (such as measurements over time) or "audio"; None: a table for two axes, else
            images.
        rate: Samples per second of audio.

    Raises:
        InputError: An array has a wrong dtype, shape or value.
    """
    x_train, x_test = _fill_masks(x_train), _fill_masks(x_test)
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if np.ma.is_masked(y) or getattr(y, "hasnans", False):
            raise InputError(f"{source}: {name} must have a value for each example; leave out examples without one")
    labels = read_targets(source, y_train, y_test, classes, class_names, targets)
    fields = None
    if isinstance(x_train, Mapping):
        if kind is not None:
            raise InputError(f"{source}: `kind` is for a single array; leave it out. Received: {kind}")
        if feature_names is not None:
            raise InputError(f"{source}: `feature_names` is for a single array; leave it out")
        x_train, x_test, fields = pack_splits(source, x_train, x_test)
        kind = "table"
    train = _build_split(source, "train", x_train, labels.train, train_owners, kind)
    test = _build_split(source, "test", x_test, labels.test, test_owners, kind)
    for part, split in (("train", train), ("test", test)):
        if len(split.x) != len(split.labels):
            raise InputError(
                f"{source}: x_{part} and y_{part} must have one entry per example. "
                f"Received: {len(split.x)} examples, {len(split.labels)} labels"
            )
    fields = fields or _fields(source, train.x, kind, feature_names, rate)
    return Dataset(train, test, fields, labels.classes, source, class_names=labels.names)


def _fields(source, x, kind, names, rate):
    """Return the fields of a single array."""
    kind = kind or ("table" if x.ndim == 2 else "images")
    if (rate is None) == (kind == "audio"):
        raise InputError(
            f"{source}: `rate` must be the samples per second of audio, and None for other data. "
            f"Received: rate={rate}, {kind}"
        )
    if names is not None and (kind not in ("table", "series") or len(names) != x.shape[-1]):
        raise InputError(
            f"{source}: `feature_names` must name the features of a table or the channels of series, here "
            f"{x.shape[1:]}. Received: {len(names)} names"
        )
    return array_fields(kind, x, None if names is None else [str(name) for name in names], rate)


def from_tf_data(
    train: "tf.data.Dataset",
    test: "tf.data.Dataset",
    *,
    classes: int | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    source: str = "tf.data",
    targets: str = LABEL,
    kind: Literal["audio", "images", "series", "table"] | None = None,
    rate: int | None = None,
) -> Dataset:
    """Build a data set from finite, unbatched `tf.data.Dataset`s of pairs `(x, y)`; see `from_arrays`.

    Args:
        train, test: Elements `(x, y)`: one image, row or dictionary of arrays, and its label as a number, a text or a
            one-hot row.
        classes, class_names, feature_names, source, targets, kind, rate: As for `from_arrays`.

    Raises:
        InputError: A data set is infinite or empty, or its elements are not such pairs.
    """
    arrays = [array for part, pairs in (("train", train), ("test", test)) for array in _read_pairs(source, part, pairs)]
    names: dict = {"class_names": class_names, "feature_names": feature_names}
    return from_arrays(*arrays, classes=classes, **names, source=source, targets=targets, kind=kind, rate=rate)


def _read_pairs(source, part, pairs):
    """Read a `tf.data.Dataset` into the arrays x and y."""
    spec = pairs.element_spec
    # Batches usually have an unknown size, in contrast to one-hot labels.
    if not isinstance(spec, tuple) or len(spec) != 2 or spec[1].shape.rank and spec[1].shape[0] is None:
        raise InputError(f"{source}, {part}: must yield pairs (x, y); call unbatch() on batches. Received: {spec}")
    # cardinality() is -1 for an infinite data set and -2 for an unknown size.
    if int(pairs.cardinality()) == -1:
        raise InputError(f"{source}, {part}: must be finite; call take(n). Received: an infinite data set")
    inputs, labels = [], []
    for x, y in pairs.as_numpy_iterator():
        inputs.append(x)
        labels.append(y)
    y = np.stack(labels) if labels else np.zeros(0, np.int32)
    if y.ndim == 2 and np.shape(inputs[0])[:1] == y.shape[1:] and y.dtype.kind in "iu" and (y.sum(1) != 1).any():
        raise InputError(f"{source}, {part}: must yield one example at a time; call unbatch() on batches")
    return _stack(source, part, inputs), y


def _stack(source, part, examples):
    """Return examples of equal shapes as an array, or as one array by name."""
    if examples and isinstance(examples[0], dict):
        return {name: _stack(source, part, [example[name] for example in examples]) for name in examples[0]}
    shapes = sorted(set(map(np.shape, examples)))
    if len(shapes) != 1:
        raise InputError(
            f"{source}, {part}: all examples must have the same shape. Received: {shapes[:5] or 'no example'}"
        )
    return np.stack(examples)


def _fill_masks(x):
    """Return an array whose masked values are NaN, so that they are not taken for numbers; also of pandas' arrays."""
    if np.ma.is_masked(x):
        return np.ma.filled(x.astype(np.float64), np.nan)
    return x.to_numpy(np.float64, na_value=np.nan) if hasattr(x, "to_numpy") and x.ndim == 2 else x


def _build_split(source, part, x, labels, owners, kind):
    if isinstance(x, DiskArray):
        rows = x
    else:
        x = np.asarray(x)
        kind = kind or ("table" if x.ndim == 2 else "images")
        x = x[..., None] if kind == "series" and x.ndim == 2 else x
        if kind == "audio":
            rows = _check_clips(source, f"x_{part}", x)
        else:
            rows = _check_images(source, f"x_{part}", x) if kind == "images" else _check_numbers(source, part, x, kind)
    owners = None if owners is None else to_integers(source, f"{part}_owners", "owner", owners)
    return Split(rows, labels, owners)


def _check_numbers(source, part, x, kind):
    """Return the rows of a table or series as float32."""
    name, axes = f"x_{part}", {"table": "features", "series": "time, channels"}[kind]
    if x.dtype.kind not in "iufb" or x.size == 0 or x.ndim != {"table": 2, "series": 3}[kind]:
        raise InputError(
            f"{source}: {name} must be numbers [n, {axes}], all dimensions above 0. Received: {x.dtype} {x.shape}"
        )
    with np.errstate(over="ignore"):
        rows = x.astype(np.float32)
    if not np.isfinite(rows).all():
        index = tuple(np.argwhere(~np.isfinite(rows))[0].tolist())
        position = f"time {index[1]}, channel {index[2]}" if kind == "series" else f"feature {index[1]}"
        raise InputError(
            f"{source}: {name} must be finite numbers in the range of float32. "
            f"Received: {x[index]} in row {index[0]}, {position}"
        )
    return rows


def _check_clips(source, name, x):
    if x.ndim != 2 or x.dtype != np.int16 and (x.dtype.kind != "f" or not (abs(x) <= 1).all()):
        raise InputError(
            f"{source}: {name} must be clips [n, samples], int16 or floats in -1..1. Received: {x.dtype} {x.shape}"
        )
    return x if x.dtype == np.int16 else np.clip(np.rint(x * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def _check_images(source, name, x):
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim != 4 or x.size == 0:
        raise InputError(
            f"{source}: {name} must have shape [n, height, width] or [n, height, width, channels] for images, "
            f"or [n, features] for a table, all dimensions above 0. Received: {x.shape}"
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise InputError(
            f"{source}: {name} must be uint8 in 0..255 (or floats in [0, 1]). Received: {x.dtype}; "
            f"convert it with {name}.astype('uint8'){SERIES_ADVICE if x.shape[-1] == 1 else ''}"
        )
    invalid = ~((x >= 0) & (x <= 1))
    if invalid.any():
        index = tuple(int(i) for i in np.argwhere(invalid)[0])
        raise InputError(
            f"{source}: {name} as floats must be in [0, 1]. Received: {x[index]} at {index}; "
            f"scale the images or store uint8 in 0..255{SERIES_ADVICE if x.shape[-1] == 1 else ''}"
        )
    return np.round(x * 255).astype(np.uint8)


# Whole numbers up to this limit are exact in float32.
MAX_WHOLE = 2**24


def pack(source: str, part: str, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, tuple[Field, ...]]:
    """Return the arrays of a split as rows, float32 `[n, values]`, and their fields, in their order.

    Args:
        source, part: Prefix of error messages, and "train" or "test".
        arrays: Finite numbers `[n, ...]` by name.

    Raises:
        InputError: An array has an unsuitable name, dtype, shape or value.
    """
    fields, columns = [], []
    for name in arrays:
        location, values = f"{source}: x_{part}[{name!r}]", np.asarray(arrays[name])
        if not (isinstance(name, str) and name.isidentifier()):
            raise InputError(f"{location}: the name of an array must be letters, digits and _. Received: {name!r}")
        if values.dtype.kind not in "biuf" or values.ndim == 0 or values.size == 0:
            raise InputError(
                f"{location} must be numbers [n, ...], all dimensions above 0; replace texts by ids of their words. "
                f"Received: {values.dtype} {values.shape}"
            )
        is_whole = values.dtype.kind in "iu"
        if not np.isfinite(values).all() or is_whole and max(-int(values.min()), int(values.max())) > MAX_WHOLE:
            raise InputError(
                f"{location} must be finite, and whole numbers at most {MAX_WHOLE:,}. Received: numbers from "
                f"{values.min()} to {values.max()}"
            )
        dtype: Any = "uint8" if values.dtype == np.uint8 else "int32" if is_whole else "float32"
        fields.append(Field(name, raw.Codec(values.shape[1:], dtype, float(values.min()), float(values.max()))))
        columns.append(values.astype(np.float32).reshape(len(values), -1))
    counts = {field.name: len(rows) for field, rows in zip(fields, columns)}
    if len(set(counts.values())) != 1:
        raise InputError(
            f"{source}: the arrays of x_{part} must have one entry per example. Received: {shorten_repr(counts, 200)}"
        )
    return np.concatenate(columns, 1), tuple(fields)


def pack_splits(
    source: str, train: Mapping[str, np.ndarray], test: Any
) -> tuple[np.ndarray, np.ndarray, tuple[Field, ...]]:
    """Return the packed rows of both splits, and the fields of the training arrays in the order of their names.

    Raises:
        InputError: An array is unsuitable, or the arrays of the splits differ in their names, shapes or dtypes.
    """
    if not isinstance(test, Mapping) or test.keys() != train.keys():
        received = list(test) if isinstance(test, Mapping) else type(test).__name__
        raise InputError(f"{source}: x_test must have the arrays {', '.join(map(str, train))}. Received: {received}")
    names = sorted(train, key=str)
    rows, fields = pack(source, "train", {name: train[name] for name in names})
    test_rows, test_fields = pack(source, "test", {name: test[name] for name in names})
    for field, other in zip(fields, test_fields):
        form, other_form = ((each.codec.dtype, each.codec.shape) for each in (field, other))
        if form != other_form:
            raise InputError(
                f"{source}: x_test[{field.name!r}] must have the dtype and shape of the training examples, "
                f"{form[0]} {form[1]}. Received: {other_form[0]} {other_form[1]}"
            )
    return rows, test_rows, fields
