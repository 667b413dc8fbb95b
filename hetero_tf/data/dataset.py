"""`Dataset`, the result of every loader: a validated training and test split."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError, shorten_repr
from hetero_tf.data.columns import Column, feature_names, is_number, sort_categories
from hetero_tf.data.disk_array import DiskArray, update_digest
from hetero_tf.data.inspection import ColumnSummary, PictureSummary, SoundSummary
from hetero_tf.data.named_arrays import NamedArray, unpack
from hetero_tf.data.targets import DESCRIPTIONS, LABEL, LABEL_MAP, NUMBERS, form_of, strata


class NotAvailable(InputError):
    """The data are missing and cannot be downloaded: the only error for which `fallback` is used."""


@dataclass(frozen=True)
class Split:
    """Examples of one split.

    Args:
        x: Images `[n, height, width, channels]`, uint8 in 0..255 or unscaled floats; a table float32 `[n, features]`;
            series float32 `[n, time, channels]`; audio int16 `[n, samples]`; several arrays packed as float32
            `[n, values]`, see `named_arrays`; sequences int32 `[n, length]` of word ids, padded with 0; or text int32
            `[rows, length]` of word ids. uint8 images may stay on disk, as a `DiskArray`.
        y: Targets of all but text in one of the forms of `targets`, such as labels int32 `[n]`; None
            for text.
        owners: Natural client of each example (such as the writer's id), int32 `[n]` from 0; None if unknown.
    """

    # An array, or a `DiskArray` with the same shape, length and slicing.
    x: Any
    y: np.ndarray | None = None
    owners: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray:
        """Prediction targets: `y`, or the words int32 `[rows, length]` of text."""
        return self.x if self.y is None else self.y

    def select(self, selected: np.ndarray) -> "Split":
        """Returns the selected examples; `selected` is bool `[n]` or an array of indices."""
        y, owners = (None if array is None else array[selected] for array in (self.y, self.owners))
        x = self.x.select(selected) if isinstance(self.x, DiskArray) else self.x[selected]
        return Split(x, y, owners)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory, or one whose images stay on disk.

    Args:
        train, test: The splits, both of the same kind.
        classes: Number of classes; the vocabulary size for text; the number of targets for numbers.
        source: One-line description of the data and their location.
        vocabulary: Words in order of their ids; None for images, tables and series. A data set with labels and a
            vocabulary is of kind "sequences".
        stand_in_for: Name of the requested data set if the fallback was used; else None.
        class_names: Names of the labels, or of the targets if these are numbers, one line each; None if unknown.
        columns: Columns from which the features of a table or the channels of series were made; None if unknown.
        tokenizer: Tokens of the vocabulary: "words", "characters" or "subwords", see `words.build_tokenizer`.
        inspection: Summaries of all columns of the training rows as read; None if unknown.
        pictures: Sizes and modes of the training pictures before they were resized; None if unknown.
        rate: Samples per second of audio; None for other kinds.
        sounds: Durations and rates of the training files of audio; None if unknown.
        base_channels: Channel of series whose last value was subtracted from each target, after the last values of a
            window were subtracted from the window; None for unchanged values.
        arrays: Arrays that the rows of examples consist of; None if an example is a single array.
        notes: Sentences about the data that the user should check.
        validation: Training examples that the statistics leave out, since clients hold them out, int ids; None: none.
        refit: `validation -> Dataset`, reads the data again with fill values, categories and a vocabulary of the other
            training examples; None: the data have none of these.

    Raises:
        InputError: An array has a wrong dtype, shape or value.
    """

    train: Split
    test: Split
    classes: int
    source: str
    vocabulary: tuple[str, ...] | None = None
    stand_in_for: str | None = None
    class_names: tuple[str, ...] | None = None
    columns: tuple[Column, ...] | None = None
    tokenizer: str = "words"
    inspection: tuple[ColumnSummary, ...] | None = None
    pictures: PictureSummary | None = None
    rate: int | None = None
    sounds: SoundSummary | None = None
    base_channels: tuple[int, ...] | None = None
    arrays: tuple[NamedArray, ...] | None = None
    notes: tuple[str, ...] = ()
    validation: np.ndarray | None = None
    refit: Callable[[np.ndarray], "Dataset"] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self):
        for name, split in (("train", self.train), ("test", self.test)):
            _check_split(f"{self.source}, {name} split", split, self)
        if self.kind != "text" and self.train.x.shape[1:] != self.test.x.shape[1:]:
            examples = "images" if self.kind == "images" else "rows"
            raise InputError(
                f"{self.source}: train and test {examples} must have the same shape. "
                f"Received: {self.train.x.shape[1:]} and {self.test.x.shape[1:]}"
            )
        of_classes = None if self.kind == "sequences" else self.vocabulary
        for name, words in (("vocabulary", of_classes), ("class_names", self.class_names)):
            if words is not None and len(words) != self.classes:
                raise InputError(
                    f"{self.source}: `{name}` must have one entry per class. "
                    f"Received: {len(words)} entries, classes={self.classes}"
                )
        if (self.rate is None) == (self.kind == "audio"):
            raise InputError(
                f"{self.source}: `rate` must be the samples per second of audio, and None for other data. "
                f"Received: rate={self.rate}, {self.kind}"
            )
        self._check_class_names()
        self._check_columns()

    def _check_class_names(self):
        seen: set[str] = set()
        for index, name in enumerate(self.class_names or ()):
            check_text(self.source, "class name", name)
            if name.splitlines() != [name] or name in seen:
                raise InputError(
                    f"{self.source}: class names must be unique single lines of text. "
                    f"Received: {name!r} for class {index}"
                )
            seen.add(name)
        for word in self.vocabulary or ():
            check_text(self.source, "word", word)

    def _check_columns(self):
        if self.columns is None:
            return
        for column in self.columns:
            for text in (column.name, *column.categories):
                check_text(self.source, "name and category of a column", text)
        features, shape = len(feature_names(self.columns)), self.train.x.shape[1:]
        if self.kind not in ("table", "series") or shape[-1] != features:
            raise InputError(
                f"{self.source}: `columns` must describe a table with {shape} features, or as many channels of series. "
                f"Received: {features} features of {len(self.columns)} columns"
            )

    @property
    def kind(self) -> str:
        """ "arrays", "audio", "images", "sequences", "series", "table" or "text"."""
        if self.train.y is None:
            return "text"
        if self.arrays is not None:
            return "arrays"
        if self.vocabulary is not None:
            return "sequences"
        if self.train.x.dtype == np.int16:
            return "audio"
        return {2: "table", 3: "series"}.get(self.train.x.ndim, "images")

    @property
    def name(self) -> str:
        """`source` without folders and reasons, for files that leave this machine."""
        name = self.source.split(" (")[0]
        return name if self.stand_in_for is None else f"{name}, standing in for {self.stand_in_for}"

    def without(self, validation: np.ndarray) -> "Dataset":
        """Return the data whose statistics leave out training examples; `validation`: their ids.

        Raises:
            InputError: A validation example has a category of no other training example.
        """
        if self.refit is None:
            return dataclasses.replace(self, validation=validation)
        try:
            other = self.refit(validation)
        except InputError as error:
            raise InputError(
                f"{error}; clients hold out all examples with it for validation: correct it, or add the column to "
                "`ignore`"
            ) from error
        train, test = (dataclasses.replace(self.train, x=other.train.x), dataclasses.replace(self.test, x=other.test.x))
        return dataclasses.replace(
            self,
            train=train,
            test=test,
            classes=other.classes,
            columns=other.columns,
            vocabulary=other.vocabulary,
            validation=validation,
            refit=None,
        )

    @functools.cached_property
    def fitted(self) -> Split:
        """The training split without the examples for validation; statistics of the data are of these examples."""
        if self.validation is None:
            return self.train
        return self.train.select(np.setdiff1d(np.arange(len(self.train.x)), self.validation))

    @functools.cached_property
    def feature_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Number to subtract from each feature of a table or channel of series, and its divisor, float64 each.

        Both are statistics of the `fitted` rows of all clients, or of all positions of their series: mean and standard
        deviation; minimum and range for columns with `scale` "minmax"; 0 and 1 with "none". A constant feature has
        divisor 1, so that the result is 0 and not NaN. In packed rows they are those of the last axis of each array of
        floats; pixels have 0 and 255, ids 0 and 1.
        """
        if self.arrays is not None:
            return _array_statistics(self.arrays, self.fitted.x)
        x = self.fitted.x.reshape(-1, self.train.x.shape[-1])
        offset, divisor = _mean_and_std(x)
        scales = np.array([column.scale for column in self.columns or () for _ in column.features])
        if len(scales):
            low, high = x.min(0).astype(np.float64), x.max(0).astype(np.float64)
            is_minmax, unscaled = scales == "minmax", scales == "none"
            offset = np.select([is_minmax, unscaled], [low, 0.0], offset)
            divisor = np.select([is_minmax, unscaled], [np.where(high == low, 1.0, high - low), 1.0], divisor)
        return offset, divisor

    @property
    def targets(self) -> str:
        """Form of the targets, see `targets`."""
        return form_of(self.train.y) or LABEL

    @property
    def sorted_class_names(self) -> tuple[str, ...] | None:
        """Class names that are texts in alphabetical order, which says nothing about their meaning; else None."""
        names = self.class_names if self.targets == LABEL else None
        return names if names and names == sort_categories(set(names)) and not all(map(is_number, names)) else None

    def in_class_order(self, names: tuple[str, ...]) -> "Dataset":
        """Return the data with the classes numbered in the order of `names`, all class names in another order.

        Raises:
            InputError: The examples do not have one label each, or `names` are not the class names.
        """
        if self.targets != LABEL or self.class_names is None or sorted(names) != sorted(self.class_names):
            known = "none" if self.targets != LABEL or self.class_names is None else ", ".join(self.class_names)
            raise InputError(
                f"`class_order` must have each class name once; those of {self.source}: {known}. "
                f"Received: class_order={list(names)}"
            )
        numbers = np.array([names.index(name) for name in self.class_names], np.int32)
        train, test = (dataclasses.replace(split, y=numbers[split.y]) for split in (self.train, self.test))
        return dataclasses.replace(self, train=train, test=test, class_names=names)

    @functools.cached_property
    def strata(self) -> tuple[np.ndarray, np.ndarray]:
        """One class for each example of both splits, see `targets.strata`; for text its words."""
        train, test = strata(self.train.labels, self.test.labels)
        return train, test

    @functools.cached_property
    def target_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each number to predict over the `fitted` examples, float64 `[targets]` each.

        A constant target has deviation 1.
        """
        labels = self.fitted.labels
        std = labels.std(0, dtype=np.float64)
        return labels.mean(0, dtype=np.float64), np.where(std == 0, 1.0, std)

    @functools.cached_property
    def sha256(self) -> str:
        """Hex digest of the content: arrays with dtype and shape, owners, classes and words, but not `source`."""
        splits = {"train": self.train, "test": self.test}
        arrays = [array for split in splits.values() for array in (split.x, split.y) if array is not None]
        digest = hashlib.sha256(repr((self.classes, self.vocabulary)).encode())
        if self.tokenizer != "words":
            digest.update(f"tokenizer {self.tokenizer}".encode())
        if self.rate is not None:
            digest.update(f"rate {self.rate}".encode())
        if self.arrays is not None:
            digest.update(f"arrays {self.arrays}".encode())
        update_digest(digest, arrays)
        for name, split in splits.items():
            if split.owners is not None:
                digest.update(f"owners of {name} {split.owners.shape}".encode())
                digest.update(np.ascontiguousarray(split.owners).data)
        return digest.hexdigest()


def _mean_and_std(x):
    """Returns the mean and standard deviation of each feature of rows; a constant one has its value and 1."""
    mean, std = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    constant = (x == x[0]).all(0)
    return np.where(constant, x[0], mean), np.where(constant | (std == 0), 1.0, std)


def _array_statistics(arrays, rows):
    """Returns the number to subtract from each value of packed rows, and its divisor."""
    offsets, divisors = [], []
    for array, values in zip(arrays, unpack(arrays, rows).values()):
        channels = array.shape[-1] if array.shape else 1
        fixed = np.zeros(channels), np.full(channels, 255.0 if array.dtype == "uint8" else 1.0)
        offset, divisor = _mean_and_std(values.reshape(-1, channels)) if array.dtype == "float32" else fixed
        offsets.append(np.tile(offset, array.size // channels))
        divisors.append(np.tile(divisor, array.size // channels))
    return np.concatenate(offsets), np.concatenate(divisors)


@dataclass(frozen=True)
class _Kind:
    """Requirements on the examples of a kind of data; a new kind also needs an input and a codec."""

    description: str
    dtypes: tuple
    ndim: int
    example: str


_KINDS = {
    "arrays": _Kind("packed arrays float32 [n, values]", (np.float32,), 2, "example"),
    "audio": _Kind("audio int16 [n, samples]", (np.int16,), 2, "clip"),
    "images": _Kind(
        "images uint8 or float [n, height, width, channels]", (np.uint8, np.float32, np.float64), 4, "image"
    ),
    "sequences": _Kind("words int32 [n, length]", (np.int32,), 2, "sequence"),
    "series": _Kind("series float32 [n, time, channels]", (np.float32,), 3, "series"),
    "table": _Kind("table rows float32 [n, features]", (np.float32,), 2, "row"),
    "text": _Kind("words int32 [rows, length]", (np.int32,), 2, "row"),
}


def _check_split(location, split, dataset):
    """Raises `InputError` for a split whose arrays do not fit the kind of the data set."""
    kind, x, y = _KINDS[dataset.kind], split.x, split.y
    if dataset.kind == "text" and y is not None:
        raise InputError(f"{location}: text has no labels `y`. Received: {y.dtype} {y.shape}")
    if isinstance(x, DiskArray) and (dataset.kind != "images" or x.dtype != np.uint8):
        raise InputError(
            f"{location}: only uint8 images may stay on disk; read the rows with array[:]. "
            f"Received: {x.dtype} {x.shape}"
        )
    if x.dtype not in kind.dtypes or x.ndim != kind.ndim or x.size == 0:
        raise InputError(
            f"{location}: expected {kind.description}, all dimensions above 0. Received: {x.dtype} {x.shape}"
        )
    if dataset.kind == "images":
        check_channels_last(location, x.shape)
    if x.dtype.kind == "f":
        _check_finite(location, x)
    if x.dtype == np.int32:
        _check_range(location, "word id", x, dataset.classes if y is None else len(dataset.vocabulary))
    if dataset.kind != "text":
        _check_targets(location, kind.example, split, dataset)
    _check_owners(location, split)


def _check_targets(location, example, split, dataset):
    """Raises `InputError` for targets of an unknown form, or of another one than those of the training split."""
    y, form = split.y, form_of(split.y)
    expected = dataset.targets if split is dataset.test else form
    if y is None or form is None or form != expected or len(y) != len(split.x):
        received = "none" if y is None else f"{y.dtype} {y.shape}"
        description = DESCRIPTIONS.get(expected or LABEL, DESCRIPTIONS[LABEL]).replace("[n", f"[{len(split.x)}")
        raise InputError(f"{location}: expected {description}, one per {example}. Received: {received}")
    if form in (LABEL, LABEL_MAP):
        _check_range(location, "label", y, dataset.classes)
    elif y.shape[1] != dataset.classes:
        raise InputError(f"{location}: expected {dataset.classes} targets per {example}. Received: {y.shape[1]}")
    if form == NUMBERS and not np.isfinite(y).all():
        row, column = np.argwhere(~np.isfinite(y))[0]
        raise InputError(f"{location}: targets must be finite. Received: {y[row, column]} in row {row}")
    if form == LABEL_MAP and y.shape[1:] != split.x.shape[1:3]:
        raise InputError(f"{location}: label maps must have the size of the images. Received: {y.shape[1:]}")


def _check_finite(location, x):
    if not np.isfinite(x).all():
        index = tuple(np.argwhere(~np.isfinite(x))[0].tolist())
        values = "pixels" if x.ndim == 4 else "numbers"
        position = f"row {index[0]}, feature {index[1]}" if x.ndim == 2 else str(index)
        raise InputError(f"{location}: expected finite {values}. Received: {x[index]} in {position}")


def check_channels_last(location: str, shape: tuple[int, ...]) -> None:
    """Raise `InputError` for images [n, channels, height, width], the layout of PyTorch.

    The check fires if the last axis exceeds 4 and the second one does not, or if the second axis is shorter than two
    equal last axes above 4.
    """
    _, first, second, last = shape
    if last > 4 and (first <= 4 or first < second == last):
        raise InputError(
            f"{location}: expected images [n, height, width, channels], but the second axis seems to be the channels; "
            f"convert them with np.moveaxis(x, 1, -1). Received: {tuple(shape)}"
        )


def check_text(location: str, item: str, text: str) -> None:
    """Raise `InputError` for a text that is not valid Unicode: half of a surrogate pair cannot be saved as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{location}: every {item} must be valid Unicode text. Received: {shorten_repr(text, 80)}"
        ) from None


def _check_owners(location, split):
    owners = split.owners
    if owners is None:
        return
    if owners.dtype != np.int32 or owners.shape != split.x.shape[:1]:
        raise InputError(
            f"{location}: expected owners int32 [{len(split.x)}], one per example. "
            f"Received: {owners.dtype} {owners.shape}"
        )
    if owners.min() < 0:
        raise InputError(
            f"{location}: owners must be integers from 0. Received: {owners.min()} at position {owners.argmin()}"
        )


def _check_range(location, item, values, classes):
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= classes:
        invalid = low if low < 0 else high
        first = int(np.flatnonzero(values.reshape(-1) == invalid)[0])
        raise InputError(
            f"{location}: every {item} must be in 0..{classes - 1}. Received: {invalid} at position {first}"
        )
