"""Builds a validated `Dataset` from arrays or `tf.data.Dataset`s in memory."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.base.sound_files import FULL_SCALE
from hetero_tf.data.codecs import Field, raw
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.fields import array_fields
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS

if TYPE_CHECKING:
    import tensorflow as tf


PARTS = ("train", "test")
# By kind: description, axes, lower bound and factor of floats that become whole numbers, and stored type.
FORMS: dict[str, tuple[str, int, float, int | None, Any]] = {
    "images": (
        "images [n, height, width] or [n, height, width, channels], uint8 in 0..255 or floats in [0, 1] (for series, "
        "set `kind: series`)",
        *(4, 0.0, 255, np.uint8),
    ),
    "table": ("numbers [n, features]", 2, 0.0, None, np.float32),
    "series": ("numbers [n, time] or [n, time, channels]", 3, 0.0, None, np.float32),
    "audio": ("clips [n, samples], int16 or floats in -1..1", 2, -1.0, FULL_SCALE, np.int16),
}


def from_arrays(
    x_train: np.ndarray | DiskArray | Mapping[str, np.ndarray],
    y_train: Any,
    x_test: np.ndarray | DiskArray | Mapping[str, np.ndarray],
    y_test: Any,
    *,
    train_owners: np.ndarray | None = None,
    test_owners: np.ndarray | None = None,
    train_weights: np.ndarray | None = None,
    classes: int | None = None,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    source: str = "arrays",
    targets: str | None = None,
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
            floats, uint8 pixels, texts, or other whole numbers, which are ids of words or categories.
        y_train, y_test: Labels: whole numbers `[n]` from 0, bool `[n]`, texts `[n]`, or one-hot rows `[n, classes]`;
            or for the task multi_task a dictionary of arrays `[n, ...]`, the targets of a model's outputs by name, or a
            tuple in their order: whole numbers and texts are labels, floats are numbers.
        train_owners, test_owners: Natural client of each example, integers `[n]` from 0.
        train_weights: Weight of each training example in the loss of local steps, numbers `[n]` from 0; None: 1.
        classes: Number of classes; None: the number of `class_names`, of different texts or of one-hot columns, 2 for
            bool, else the highest training label plus one, and each label must occur.
        class_names: Names of the labels in order; None: the training texts in sorted order, if the labels are texts.
        feature_names: Names of the features of a table, or of the channels of series, in order.
        source: One-line description of the data; the prefix of every error message.
        targets: Form of `y_train` and `y_test`: "label"; "numbers" `[n]` or `[n, targets]` for the task regression;
            "label_set", bool or 0 and 1 `[n, labels]`, for multi_label; "label_map", whole numbers `[n, height,
            width]`, for segmentation. `class_names` then name the targets, and `classes` is their number. None:
            "numbers" for floats that are not whole, else "label".
        kind: "images", "table", "series" (such as measurements over time) or "audio"; None: a table for two axes, else
            images.
        rate: Samples per second of audio.

    Raises:
        InputError: An array has a wrong dtype, shape or value.
    """
    x_train, y_train, x_test, y_test = map(_fill_masks, (x_train, y_train, x_test, y_test))
    fields: tuple[Field, ...] | None = None
    outputs: tuple[Field, ...] = ()
    if isinstance(y_train, Mapping | tuple):
        if {classes, class_names, targets} != {None}:
            raise InputError(f"{source}: `classes`, `class_names` and `targets` are for one target; leave them out")
        train_rows, test_rows, outputs = pack_splits(source, "y", *map(_by_name, (y_train, y_test)))
        train_labels, test_labels = (rows.astype(np.float64) for rows in (train_rows, test_rows))
        names: tuple[str, ...] | None = tuple(field.name for field in outputs)
        count = len(outputs)
    else:
        targets = infer_form(y_train) if targets is None else targets
        train_labels, test_labels, count, names = read_targets(source, y_train, y_test, classes, class_names, targets)
    if isinstance(x_train, Mapping):
        if kind is not None or feature_names is not None:
            raise InputError(f"{source}: `kind` and `feature_names` are for a single array; leave them out")
        x_train, x_test, fields = pack_splits(source, "x", x_train, x_test)
        kind = "table"
    kind = kind or ("table" if np.ndim(x_train) == 2 else "images")  # type: ignore[arg-type]
    train = _build_split(source, "train", x_train, train_labels, train_owners, kind, train_weights)
    test = _build_split(source, "test", x_test, test_labels, test_owners, kind)
    fields = fields or _fields(source, train.x, kind, feature_names, rate)
    return Dataset(train, test, fields, count, source, class_names=names, outputs=outputs)


# Name of the targets of a tuple, which a model with names for its outputs replaces.
POSITION = "output_{:02}"


def _by_name(targets):
    return {POSITION.format(index): each for index, each in enumerate(targets)} if type(targets) is tuple else targets


def _fields(source, x, kind, names, rate):
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
    targets: str | None = None,
    kind: Literal["audio", "images", "series", "table"] | None = None,
    rate: int | None = None,
) -> Dataset:
    """Build a data set from finite, unbatched `tf.data.Dataset`s of pairs `(x, y)`; see `from_arrays`.

    Args:
        train, test: Elements `(x, y)`: one image, row or dictionary of arrays, and its label as a number, a text or a
            one-hot row, or the targets of several outputs as a dictionary or a tuple; or `(x, y, weight)`, where the
            weights of test examples are 1; or dictionaries, whose `y`, `label` or `target` is the label.
        classes, class_names, feature_names, source, targets, kind, rate: As for `from_arrays`.

    Raises:
        InputError: A data set is infinite or empty, or its elements are not such pairs.
    """
    *train_arrays, weights = _read_pairs(source, "train", train)
    *test_arrays, test_weights = _read_pairs(source, "test", test)
    if test_weights is not None and (test_weights != 1).any():
        raise InputError(f"{source}, test: the weights must be 1, since metrics count each example once; yield pairs")
    options: dict = {"classes": classes, "class_names": class_names, "feature_names": feature_names, "kind": kind}
    options |= {"source": source, "targets": targets, "rate": rate, "train_weights": weights}
    return from_arrays(*train_arrays, *test_arrays, **options)


# Keys of the label of an element that is a dictionary.
LABEL_KEYS = ("y", "label", "target")


def _as_pairs(elements):
    """Return the pairs of elements that are dictionaries with a label: its other values are the input."""
    spec = elements.element_spec
    label = next((key for key in LABEL_KEYS if key in spec), None) if isinstance(spec, dict) else None
    if label is None or len(spec) == 1:
        return elements

    def to_pair(element):
        values = {key: value for key, value in element.items() if key != label}
        return values if len(values) > 1 else next(iter(values.values())), element[label]

    return elements.map(to_pair)


def _read_pairs(source, part, pairs):
    """Read a `tf.data.Dataset` into the arrays x and y, and the weights or None."""
    if not hasattr(pairs, "element_spec"):
        expected = "a tf.data.Dataset, such as tf.data.Dataset.from_generator(...)"
        raise InputError(f"{source}, {part}: must be {expected}. Received: {type(pairs).__name__}")
    pairs = _as_pairs(pairs)
    spec = pairs.element_spec
    is_tuple = isinstance(spec, tuple) and len(spec) in (2, 3)
    y = _by_name(spec[1]) if is_tuple else None
    specs: list[Any] = [*(y.values() if isinstance(y, dict) else [y]), *(spec[2:] if is_tuple else ())]
    # Batches usually have an unknown size, in contrast to one-hot labels.
    if not all(hasattr(each, "shape") and (not each.shape.rank or each.shape[0] is not None) for each in specs):
        remedies = 'use map(lambda e: (e["image"], e["kind"]))', "call unbatch() on batches"
        remedy = remedies[isinstance(spec, tuple)]
        raise InputError(f"{source}, {part}: must yield pairs (x, y); {remedy}. Received: {spec}")
    # cardinality() is -1 for an infinite data set and -2 for an unknown size.
    if int(pairs.cardinality()) == -1:
        raise InputError(f"{source}, {part}: must be finite; call take(n). Received: an infinite data set")
    # tf.data's `batch` would allocate its largest size.
    columns = [*zip(*pairs.as_numpy_iterator())]
    if not columns:
        raise InputError(f"{source}, {part}: must yield at least one example. Received: none")
    inputs, labels, *weights = columns
    y = _stack(source, part, [_by_name(each) for each in labels])
    is_matrix = isinstance(y, np.ndarray) and y.ndim == 2 and y.dtype.kind in "iu"
    if is_matrix and np.shape(inputs[0])[:1] == y.shape[1:] and (y.sum(1) != 1).any():
        raise InputError(f"{source}, {part}: must yield one example at a time; call unbatch() on batches")
    return _stack(source, part, inputs), y, np.stack(weights[0]) if weights else None


def _stack(source, part, examples):
    if isinstance(examples[0], dict):
        return {name: _stack(source, part, [example[name] for example in examples]) for name in examples[0]}
    shapes = sorted(set(map(np.shape, examples)))
    if len(shapes) != 1:
        raise InputError(f"{source}, {part}: all examples must have the same shape. Received: {shapes[:5]}")
    return np.stack(examples)


def _fill_masks(values):
    """Return an array whose masked values are NaN, so that they are not taken for numbers; also of pandas' arrays."""
    if np.ma.is_masked(values):
        return np.ma.filled(values.astype(np.float64), np.nan)
    is_frame = hasattr(values, "to_numpy") and values.ndim == 2
    # The check of an array refuses texts and dates by its name.
    with contextlib.suppress(TypeError, ValueError):
        return values.to_numpy(np.float64, na_value=np.nan) if is_frame else values
    return values.to_numpy(object)


def _build_split(source, part, x, labels, owners, kind, weights=None):
    if not isinstance(x, DiskArray):
        x = _convert(source, f"x_{part}", np.asarray(x), kind)
    if owners is not None:
        owners = to_integers(source, f"{part}_owners", "integers [n] from 0", owners)
    if weights is not None:
        weights = np.asarray(weights)
        if weights.dtype.kind not in "biuf" or weights.shape != (len(x),) or not (weights >= 0).all():
            raise InputError(
                f"{source}: {part}_weights must be numbers [{len(x)}] from 0, one for each example. "
                f"Received: {weights.dtype} {weights.shape}"
            )
        weights = weights.astype(np.float32)
    return Split(x, labels, owners, weights)


def _convert(source, name, x, kind):
    """Return examples as they are stored; `Dataset` checks that numbers are finite."""
    expected, ndim, low, scale, dtype = FORMS[kind]
    x = x[..., None] if kind in ("images", "series") and x.ndim == ndim - 1 else x
    is_valid = x.dtype.kind in "biuf" and x.ndim == ndim and x.size > 0
    if scale is None and is_valid:
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    if is_valid and x.dtype == dtype:
        return x
    if not is_valid or x.dtype.kind != "f" or not ((x >= low) & (x <= 1)).all():
        received = f"{x.dtype} {x.shape}" + (f", {x.min()} to {x.max()}" if is_valid else "")
        raise InputError(f"{source}: {name} must be {expected}, all dimensions above 0. Received: {received}")
    return np.clip(np.rint(x * scale), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


# Whole numbers up to this limit are exact in float32.
MAX_WHOLE = 2**24


def pack_splits(
    source: str, letter: str, train: Mapping[str, np.ndarray], test: Any
) -> tuple[np.ndarray, np.ndarray, tuple[Field, ...]]:
    """Return the arrays by name of both splits as rows, float32 `[n, values]`, and their fields, sorted by name.

    `letter` is "x" or "y", for examples or their targets.

    Raises:
        InputError: An array has an unsuitable name, dtype, shape or value, or the splits differ in them.
    """
    if not isinstance(test, Mapping) or test.keys() != train.keys():
        received = list(test) if isinstance(test, Mapping) else type(test).__name__
        expected = ", ".join(map(str, train))
        raise InputError(f"{source}: {letter}_test must have the arrays {expected}. Received: {received}")
    fields, rows = [], []
    for name in sorted(train, key=str):
        arrays, texts = _number_texts([np.asarray(split[name]) for split in (train, test)])
        if not (isinstance(name, str) and name.isidentifier()):
            raise InputError(f"{source}: the name of an array must be letters, digits and _. Received: {name!r}")
        first, second = (
            _raw_field(f"{source}: {letter}_{part}[{name!r}]", name, values) for part, values in zip(PARTS, arrays)
        )
        forms = [(each.codec.dtype, each.codec.shape) for each in (first, second)]
        if forms[0] != forms[1]:
            raise InputError(
                f"{source}: {letter}_test[{name!r}] must have the dtype and shape of the training examples, "
                f"{forms[0][0]} {forms[0][1]}. Received: {forms[1][0]} {forms[1][1]}"
            )
        fields.append(Field(name, replace(first.codec, dtype="string", texts=texts)) if texts else first)
        rows.append([values.astype(np.float32).reshape(len(values), -1) for values in arrays])
    for part, columns in zip(PARTS, zip(*rows)):
        counts = {field.name: len(column) for field, column in zip(fields, columns)}
        if len(set(counts.values())) != 1:
            raise InputError(
                f"{source}: the arrays of {letter}_{part} must be equally long. Received: {shorten_repr(counts, 200)}"
            )
    train_rows, test_rows = (np.concatenate(columns, 1) for columns in zip(*rows))
    return train_rows, test_rows, tuple(fields)


def _number_texts(arrays):
    """Return arrays of texts as their positions among all of them, and these; other arrays and no texts."""
    if any(values.dtype.kind not in "OSTU" for values in arrays):
        return arrays, ()
    every = np.concatenate([np.ravel(values).astype(str) for values in arrays])
    texts, positions = np.unique(every, return_inverse=True)
    parts = np.split(positions, [arrays[0].size])
    return [part.reshape(values.shape) for part, values in zip(parts, arrays)], tuple(texts.tolist())


def _raw_field(location, name, values):
    is_whole = values.dtype.kind in "iu"
    is_valid = values.dtype.kind in "biuf" and values.ndim and values.size and np.isfinite(values).all()
    if not is_valid or is_whole and max(-int(values.min()), int(values.max())) > MAX_WHOLE:
        raise InputError(
            f"{location} must be texts, or finite numbers [n, ...], whole numbers at most {MAX_WHOLE:,}. "
            f"Received: {values.dtype} {values.shape}"
        )
    dtype: Any = "uint8" if values.dtype == np.uint8 else "int32" if is_whole else "float32"
    return Field(name, raw.Codec(values.shape[1:], dtype, float(values.min()), float(values.max())))


LABELS = (
    "whole numbers 0..k-1, texts or one-hot rows, one for each example; numbers to predict need the task regression, "
    'and targets="numbers" in Python'
)
OTHER_TARGETS = {
    NUMBERS: "finite numbers [n] or [n, targets]",
    LABEL_SET: "0 and 1, or bool, [n, labels]",
    LABEL_MAP: "whole numbers from 0, [n, height, width]",
}


def read_targets(
    source: str,
    y_train: np.ndarray,
    y_test: np.ndarray,
    classes: int | None,
    names: Sequence[str] | None,
    targets: str = LABEL,
) -> tuple[np.ndarray, np.ndarray, int, tuple[str, ...] | None]:
    """Return the targets of both splits in the form of `Split.y`, the number of classes, and their names or None.

    Args:
        source, y_train, y_test, classes, names: As for `from_arrays`. Labels may also be `[n, 1]`. Floats that are
            whole numbers raise a warning.
        targets: Form of the targets, see `targets`.

    Raises:
        InputError: An array has a wrong dtype, shape or value, or its labels are not among the names.
    """
    names = None if names is None else tuple(map(str, names))
    if targets == LABEL:
        return _read_labels(source, {"y_train": y_train, "y_test": y_test}, classes, names)
    if targets not in OTHER_TARGETS:
        forms = ", ".join((LABEL, *OTHER_TARGETS))
        raise InputError(f"`targets` must be one of {forms}. Received: targets={targets!r}")
    arrays = []
    for name, values in (("y_train", y_train), ("y_test", y_test)):
        values = np.asarray(values)
        array = _read_form(targets, values) if values.size and values.dtype.kind in "biuf" else None
        if array is None:
            received = f"{values.dtype} {values.shape}"
            raise InputError(f"{source}: {name} must be {OTHER_TARGETS[targets]}. Received: {received}")
        arrays.append(array)
    train, test = arrays
    count = train.shape[1] if targets != LABEL_MAP else int(train.max()) + 1 if names is None else len(names)
    return train, test, classes or count, names


def infer_form(targets: np.ndarray) -> str:
    """Return the form "numbers" for floats of which some are not whole, else "label".

    Rows of probabilities are labels, which are refused because they are not one-hot.
    """
    if (values := np.asarray(targets)).dtype.kind != "f" or values.ndim not in (1, 2):
        return LABEL
    is_probability = values.ndim == 2 and values.shape[1] > 1 and np.allclose(values.sum(1), 1)
    is_fraction = np.isfinite(values) & (values != np.round(values))
    return NUMBERS if not is_probability and is_fraction.any() else LABEL


def _read_form(targets, values):
    """Return numbers in a form of `OTHER_TARGETS`; None if they have another one."""
    if targets == NUMBERS:
        values = values[:, None] if values.ndim == 1 else values
        with np.errstate(over="ignore"):
            return values.astype(np.float32) if values.ndim == 2 else None
    if targets == LABEL_SET:
        return values.astype(bool) if values.ndim == 2 and np.isin(values, (0, 1)).all() else None
    if values.ndim == 4 and values.shape[-1] == 1:
        values = values[..., 0]
    is_map = values.ndim == 3 and values.dtype.kind in "iu" and values.min() >= 0 and values.max() < 2**31 - 1
    return values.astype(np.int32) if is_map else None


def _read_labels(source, arrays, classes, names):
    arrays = {name: _decode_texts(np.asarray(values)) for name, values in arrays.items()}
    train = arrays["y_train"]
    if names is None and train.dtype.kind == "U":
        names = tuple(np.unique(train).tolist())
    train_labels, test_labels = (_to_labels(source, name, array, names) for name, array in arrays.items())
    if classes is None and (names is not None or train.dtype == bool and train.ndim == 1):
        classes = 2 if names is None else len(names)
    if classes is None:
        classes = train.shape[1] if train.ndim == 2 else int(train_labels.max()) + 1
        # A stray label such as 255 would give the model 256 outputs; unused labels need an explicit `classes`.
        if train.ndim != 2 and len(np.unique(train_labels)) != classes:
            raise InputError(
                f"{source}: y_train must contain every label from 0 to {classes - 1}; renumber the labels or set "
                "`classes`"
            )
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
    values = values.astype(np.int32) if values.dtype == bool else values
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
