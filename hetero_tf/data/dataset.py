"""`Dataset`, the result of every loader: a validated training and test split."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import shorten
from hetero_tf.base.seeds import rng
from hetero_tf.data import targets
from hetero_tf.data.codecs import Field, fit, stored_shape
from hetero_tf.data.columns import is_number, sort_categories
from hetero_tf.data.disk_array import DiskArray
from hetero_tf.data.inspection import TableSummary, outlier
from hetero_tf.data.targets import LABEL, POSITIONS, BaseTargets, strata


class NotAvailable(InputError):
    """The data are missing and cannot be downloaded: the only error for which `fallback` is used."""


@dataclass(frozen=True)
class Split:
    """Examples of one split.

    Args:
        x: Images `[n, height, width, channels]`, uint8 in 0..255 or unscaled floats; a table float32 `[n, features]`;
            series float32 `[n, time, channels]`; audio int16 `[n, samples]`; several arrays packed as float32
            `[n, values]`; sequences int32 `[n, length]` of word ids, padded with 0; or text int32
            `[rows, length]` of word ids. uint8 images may stay on disk, as a `DiskArray`.
        y: Targets of all but text in one of the forms of `targets`, such as labels int32 `[n]`; None
            for text.
        owners: Natural client of each example (such as the writer's id), int32 `[n]` from 0; None if unknown.
        weights: Weight of each example in the loss of local steps, float32 `[n]`; None: 1.
    """

    # An array, or a `DiskArray` with the same shape, length and slicing.
    x: Any
    y: np.ndarray | None = None
    owners: np.ndarray | None = None
    weights: np.ndarray | None = None

    @property
    def labels(self) -> np.ndarray:
        """Prediction targets: `y`, or the words int32 `[rows, length]` of text."""
        return self.x if self.y is None else self.y

    def select(self, selected: np.ndarray) -> "Split":
        """Return the selected examples; `selected` is bool `[n]` or an array of indices."""
        arrays = (None if array is None else array[selected] for array in (self.y, self.owners, self.weights))
        x = self.x.select(selected) if isinstance(self.x, DiskArray) else self.x[selected]
        return Split(x, *arrays)


@dataclass(frozen=True)
class Dataset:
    """A data set in memory, or one whose images stay on disk.

    Args:
        train, test: The splits, both with the same fields.
        fields: Name and codec of each value of an example, see `codecs`.
        classes: Number of classes; the vocabulary size for text; the number of targets for numbers.
        source: One-line description of the data and their location.
        stand_in_for: Name of the requested data set if the fallback was used; else None.
        class_names: Names of the labels, or of the targets if these are numbers, one line each; None if unknown.
        outputs: Names and codecs of the targets of a model with several outputs, packed in `Split.y`; empty for one.
        summary: Summary of the files as read, of tables a `TableSummary`, else a text; None if there is none.
        notes: Sentences about the data that the user should check.
        validation: Training examples that the statistics leave out, since clients hold them out, int ids; None: none.
        digest: `sha256` of data that were described or converted; "": it is computed.
        refit: `validation -> Dataset`, reads the data again with fill values, categories and a vocabulary of the other
            training examples; None: the data have none of these.

    Raises:
        InputError: An array has a wrong dtype, shape or value.
    """

    train: Split
    test: Split
    fields: tuple[Field, ...]
    classes: int
    source: str
    stand_in_for: str | None = None
    class_names: tuple[str, ...] | None = None
    outputs: tuple[Field, ...] = ()
    summary: TableSummary | str | None = None
    notes: tuple[str, ...] = ()
    validation: np.ndarray | None = None
    digest: str = ""
    refit: Callable[[np.ndarray], "Dataset"] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self):
        for name, split in (("train", self.train), ("test", self.test)):
            _check_split(f"{self.source}, {name} split", split, self)
        expected = stored_shape(self.fields)
        if self.train.x.shape[1:] != expected:
            raise InputError(
                f"{self.source}: `fields` must describe the examples, of shape {self.train.x.shape[1:]}. Received: "
                f"{len(self.fields)} fields of shape {expected}"
            )
        if self.test.x.shape[1:] != expected and self.targets != POSITIONS:
            raise InputError(
                f"{self.source}: train and test {self.codec.NOUN} must have the same shape. Received: {expected} and "
                f"{self.test.x.shape[1:]}"
            )
        if self.class_names is not None and len(self.class_names) != self.classes:
            raise InputError(
                f"{self.source}: `class_names` must have one entry per class. "
                f"Received: {len(self.class_names)} entries, classes={self.classes}"
            )
        first = {name: index for index, name in reversed([*enumerate(self.class_names or ())])}
        for index, name in enumerate(self.class_names or ()):
            if name.splitlines() != [name] or first[name] != index:
                raise InputError(
                    f"{self.source}: class names must be unique single lines of text. Received: {name!r} for {index}"
                )
        texts = [text for field in self.fields for text in (field.name, *field.codec.texts)]
        try:
            # Half of a surrogate pair cannot be saved as UTF-8.
            "".join([*texts, *(self.class_names or ())]).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.source}: names, categories and words must be valid Unicode text. "
                f"Received: {error.object[error.start]!r}"
            ) from None

    @property
    def codec(self) -> Any:
        """The codec of the first field, which has the constants of all."""
        return self.fields[0].codec

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
            raise InputError(f"{error}; clients hold out all examples with it: add the column to `ignore`") from error
        train, test = (dataclasses.replace(self.train, x=other.train.x), dataclasses.replace(self.test, x=other.test.x))
        return dataclasses.replace(
            self, train=train, test=test, classes=other.classes, fields=other.fields, validation=validation, refit=None
        )

    @functools.cached_property
    def fitted(self) -> Split:
        """The training split without the examples for validation; statistics of the data are of these examples."""
        if self.validation is None:
            return self.train
        return self.train.select(np.setdiff1d(np.arange(len(self.train.x)), self.validation))

    @functools.cached_property
    def fitted_fields(self) -> tuple[Field, ...]:
        """The fields with statistics of the `fitted` examples of all clients."""
        return fit(self.fields, self.fitted.x)

    @functools.cached_property
    def feature_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Number to subtract from each feature, channel or packed value, and its divisor, float64 each.

        Both are statistics of the `fitted` rows, or of all positions of their series: mean and standard deviation;
        minimum and range for columns with `scale` "minmax"; 0 and 1 with "none". A constant feature has divisor 1, so
        that the result is 0 and not NaN. Pixels among several arrays have 0 and 255, ids 0 and 1.
        """
        each = [field.codec.statistics for field in self.fitted_fields]
        means, stds = (np.concatenate([np.array(one[part], np.float64) for one in each]) for part in (0, 1))
        if not means.size:
            raise InputError(f"{self.source}: {self.codec.NOUN} have no statistics of features")
        return means, stds

    @property
    def targets(self) -> str:
        """Form of the targets, see `targets`."""
        return targets.form_of(self.train.y) or LABEL

    @property
    def label_count(self) -> int:
        """Number of classes that functions of models get: of several outputs, the most that one of them has."""
        counts = [int(field.codec.high) + 1 for field in self.outputs if field.codec.dtype != "float32"]
        return max(counts, default=self.classes)

    @property
    def form(self) -> BaseTargets:
        """The targets of that form."""
        return targets.find(self.targets)

    @property
    def sorted_class_names(self) -> tuple[str, ...] | None:
        """Class names that are texts in alphabetical order, which says nothing about their meaning; else None."""
        names = self.class_names if self.targets == LABEL else None
        return names if names and names == sort_categories(set(names)) and not all(map(is_number, names)) else None

    @property
    def text_fields(self) -> list[str]:
        """Names of the fields whose values are texts, which layers of a Keras model read."""
        return [field.name for field in self.fields if getattr(field.codec, "dtype", None) == "string"]

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
        train, test = self.form.strata(self.train.labels, self.test.labels)
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
        """Hex digest of the content: arrays with dtype and shape, owners, classes and fields, but not `source`."""
        if self.digest:
            return self.digest
        # A model names targets that were passed as a tuple.
        packed = tuple(field.codec for field in self.outputs)
        digest = hashlib.sha256(repr((self.classes, self.fields, *packed)).encode())
        splits = {"train": self.train, "test": self.test}
        for array in (array for split in splits.values() for array in (split.x, split.y) if array is not None):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            for block in array.blocks() if isinstance(array, DiskArray) else [array]:
                digest.update(np.ascontiguousarray(block).data)
        for name, split in splits.items():
            if split.owners is not None:
                digest.update(f"owners of {name} {split.owners.shape}".encode())
                digest.update(np.ascontiguousarray(split.owners).data)
        if self.train.weights is not None:
            digest.update(b"weights" + self.train.weights.tobytes())
        return digest.hexdigest()

    def describe(self) -> list[str]:
        """Return lines of at most 80 characters about the examples and the classes, as they were understood."""
        return [*self.codec.describe(self.fields, self.train.x, self.summary), *self.form.describe(self)]

    def warnings(self, clients: int) -> list[str]:
        """Return the notes, and sentences about row numbers, outliers, rare classes and a large majority.

        Args:
            clients: Number of clients that share the training examples.
        """
        warnings = [*self.notes, *(self.summary.warnings if isinstance(self.summary, TableSummary) else ())]
        warnings += [f"classes {sentence}" for sentence in different_cases(self.class_names or ())]
        if names := [name for field in self.fields for name in field.codec.features(field.name)]:
            columns = zip(names, self.train.x.reshape(-1, len(names)).T, *self.feature_statistics)
            warnings += filter(None, (outlier(f"column {shorten(name)!r}", *values) for name, *values in columns))
        return [*warnings, *self.form.warn(self, clients)]

    @property
    def baseline(self) -> tuple[str, float, str]:
        """`(metric, its value on the test examples, prediction)` of a simple prediction.

        It is the most frequent class, the best constant set of labels, the better one of the mean and, for forecasts,
        the last value of the window, or the frequency of each word.
        """
        return self.form.baseline(self)


def _check_split(location, split, dataset):
    """Raise `InputError` for a split whose arrays do not fit the fields and targets of the data set."""
    codec, x, y, form = dataset.codec, split.x, split.y, dataset.form
    ndim = 1 + len(stored_shape(dataset.fields))
    if x.dtype not in codec.DTYPES or x.ndim != ndim or x.size == 0:
        raise InputError(f"{location}: expected {codec.STORED}, all dimensions above 0. Received: {x.dtype} {x.shape}")
    codec.check(location, x)
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        index = tuple(np.argwhere(~np.isfinite(x))[0].tolist())
        values = "pixels" if x.ndim == 4 else "numbers"
        position = f"row {index[0]}, feature {index[1]}" if x.ndim == 2 else str(index)
        raise InputError(f"{location}: expected finite {values}. Received: {x[index]} in {position}")
    if targets.form_of(y) != dataset.targets or y is not None and len(y) != len(x):
        received = "none" if y is None else f"{y.dtype} {y.shape}"
        description = form.DESCRIPTION.replace("[n", f"[{len(x)}")
        raise InputError(f"{location}: expected {description}, one per {codec.EXAMPLE}. Received: {received}")
    form.check(location, split, dataset)
    owners = split.owners
    if owners is not None and (owners.dtype != np.int32 or owners.shape != x.shape[:1]):
        raise InputError(f"{location}: expected owners int32 [{len(x)}]. Received: {owners.dtype} {owners.shape}")
    if owners is not None and owners.min() < 0:
        raise InputError(
            f"{location}: owners must be integers from 0. Received: {owners.min()} at position {owners.argmin()}"
        )


def held_out(labels: np.ndarray, share: float, source: str, groups: np.ndarray | None = None) -> np.ndarray:
    """Draw a deterministic stratified test split; at least one example of each label stays in training.

    Args:
        labels: int `[n]`; equal labels give equal draws.
        share: Share of the examples, above 0 and below 1.
        source: Description of the data, for the message.
        groups: Number of the group of each example, whose examples are drawn together; None: each one is a group.

    Returns:
        bool `[n]`, True for a test example.

    Raises:
        InputError: The share leaves no test example.
    """
    if groups is not None:
        _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
        return held_out(labels[first], share, source)[groups]
    is_test, generator = np.zeros(len(labels), bool), rng(0, "held out for tests")
    for label in np.unique(labels):
        indices = generator.permutation(np.flatnonzero(labels == label))
        is_test[indices[: min(round(share * len(indices)), len(indices) - 1)]] = True
    if not is_test.any():
        raise InputError(
            f"{source}: `test_share` is too small for any test example; use a larger share or more examples. "
            f"Received: test_share={share} of {len(labels)} examples"
        )
    return is_test


def hold_out(split: Split, share: float, source: str) -> tuple[Split, Split]:
    """Return the training and the test split that `held_out` draws from the classes of a split, see `strata`.

    Raises:
        InputError: The share is above 0, but too small to hold out an example of any client.
    """
    (classes,) = strata(split.labels)
    is_test = held_out(classes, share, source)
    return split.select(~is_test), split.select(is_test)


def different_cases(texts: Iterable[str]) -> list[str]:
    """Return a sentence about each text that differs from an earlier one only in case."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(text.lower(), text), text) for text in texts]
    return [f"{one} and {other} differ only in case; are they the same?" for one, other in pairs if one != other]
