"""Describe a data set without its examples, so that a trained model can be used without the data."""

import dataclasses
import functools
import math
from typing import Annotated, Any, Literal, get_args

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.base.constraints import Range, Tokenizer
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.typed_json import from_json
from hetero_tf.data.columns import Column
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.fields import column_fields, repair_rows
from hetero_tf.data.named_arrays import NamedArray
from hetero_tf.data.targets import LABEL_MAP, LABEL_SET, NUMBERS

# Number of random examples of a split.
NUM_EXAMPLES = 32
DType = Literal["uint8", "int16", "int32", "float32", "float64"]
Positive = Annotated[int, Range(low=1)]
Rows = tuple[tuple[float, ...], tuple[float, ...]]


@dataclasses.dataclass(frozen=True)
class Description:
    """A data set without its examples, see `describe`.

    Attributes:
        shape, dtype: Those of one example.
        range: Lowest and highest value of pictures with floats.
        statistics: Number to subtract from each feature, and its divisor.
        target_statistics: Mean and standard deviation of each number to predict.
        data: Digest of the data.
    """

    kind: str
    shape: tuple[Positive, ...]
    dtype: DType
    range: tuple[float, float] | None
    classes: Positive
    source: str
    stand_in_for: str | None
    vocabulary: tuple[str, ...] | None
    tokenizer: Tokenizer
    rate: Positive | None
    class_names: tuple[str, ...] | None
    columns: tuple[Column, ...] | None
    statistics: Rows | None
    arrays: tuple[NamedArray, ...] | None
    targets: str
    target_statistics: Rows | None
    base_channels: tuple[int, ...] | None
    data: str

    def __post_init__(self):
        last, targets, channels = self.shape[-1:], self.target_statistics, self.base_channels
        arrays = self.arrays or ()
        fits = {
            "arrays": not arrays or (sum(array.size for array in arrays),) == last and all(map(_is_valid, arrays)),
            "vocabulary": self.kind != "sequences" or bool(self.vocabulary),
            "statistics": self.statistics is None or {(len(row),) for row in self.statistics} == {last},
            "target_statistics": (targets is None) == (self.targets != NUMBERS)
            and (targets is None or {*map(len, targets)} == {self.classes} and min(targets[1]) > 0),
            "base_channels": channels is None
            or (len(channels) == self.classes and all((channel,) < last for channel in channels)),
            "range": self.range is not None or self.kind != "images" or self.dtype == "uint8",
        }
        if wrong := [name for name, is_met in fits.items() if not is_met]:
            raise ValueError(f"{wrong[0]} must fit the other values")
        for column in self.columns or ():
            if column.fill is not None:
                # Raises `InputError` for a fill value that is none of the column.
                column_fields((column,), np.zeros(column.width).tolist())


def _is_valid(array):
    has_values = min(array.shape, default=1) > 0 and array.low <= array.high
    return has_values and array.name.isidentifier() and array.dtype in get_args(DType)


@dataclasses.dataclass(frozen=True)
class DescribedDataset(Dataset):
    """A data set made from a description; its examples are random values of the described shape and dtype.

    Args:
        digest: `sha256` of the described data.
        statistics: `feature_statistics` of a table, series or arrays, float64 `[2, features]`; else None.
        statistics_of_targets: The same of the numbers to predict, float64 `[2, targets]`; None for other targets.
    """

    digest: str = ""
    statistics: np.ndarray | None = None
    statistics_of_targets: np.ndarray | None = None

    @property
    def sha256(self) -> str:
        """Hex digest of the described data."""
        return self.digest

    @property
    def feature_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Number to subtract from each feature, and its divisor, see `Dataset`."""
        if self.statistics is None:
            raise InputError(f"{self.source}: its description has no statistics of features")
        return self.statistics[0], self.statistics[1]

    @property
    def target_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each number to predict, see `Dataset`."""
        if self.statistics_of_targets is None:
            raise InputError(f"{self.source}: its description has no statistics of targets")
        return self.statistics_of_targets[0], self.statistics_of_targets[1]


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the description of a data set, ready for JSON."""
    x, is_float = dataset.train.x, dataset.kind == "images" and dataset.train.x.dtype != np.uint8
    shared = ("kind", "classes", "source", "stand_in_for", "vocabulary", "tokenizer", "rate", "class_names", "columns")
    description = Description(
        **{name: getattr(dataset, name) for name in (*shared, "arrays", "targets", "base_channels")},
        shape=x.shape[1:],
        dtype=np.dtype(x.dtype).name,
        range=(float(x.min()), float(x.max())) if is_float else None,
        statistics=_to_rows(dataset.feature_statistics) if dataset.kind in ("arrays", "table", "series") else None,
        target_statistics=_to_rows(dataset.target_statistics) if dataset.targets == NUMBERS else None,
        data=dataset.sha256,
    )
    return dataclasses.asdict(description)


def _to_rows(statistics):
    return tuple(tuple(map(float, row)) for row in statistics)


def from_description(value: Any, source: object, advice: str = "") -> DescribedDataset:
    """Build a data set with random examples from a description.

    Args:
        value: Result of `describe`.
        source, advice: See `typed_json.from_json`.

    Raises:
        InputError: The description is inconsistent.
    """
    described = from_json(Description, value, source, advice)
    shape = (NUM_EXAMPLES, *described.shape)
    check_memory(described.source, 2 * math.prod(shape) * np.dtype(described.dtype).itemsize)
    rng = seeds.rng(0, "examples of a description")
    statistics, target_statistics = (
        None if one is None else np.array(one) for one in (described.statistics, described.target_statistics)
    )
    draw = functools.partial(_draw_split, rng, described, shape, statistics)
    return DescribedDataset(
        train=draw(),
        test=draw(),
        classes=described.classes,
        source=described.source,
        stand_in_for=described.stand_in_for,
        vocabulary=described.vocabulary,
        class_names=described.class_names,
        columns=described.columns,
        tokenizer=described.tokenizer,
        rate=described.rate,
        base_channels=described.base_channels,
        digest=described.data,
        arrays=described.arrays,
        statistics=statistics,
        statistics_of_targets=target_statistics,
    )


def _draw_split(rng, value, shape, statistics):
    """Draw random examples of the described shape and dtype."""
    kind, classes = value.kind, value.classes
    if kind in ("text", "sequences"):
        x = rng.integers(0, classes if kind == "text" else len(value.vocabulary), shape)
    elif value.arrays:
        x = np.concatenate([_draw_array(array, rng) for array in value.arrays], 1)
    elif value.dtype in ("uint8", "int16"):
        limits = np.iinfo(value.dtype)
        x = rng.integers(limits.min, limits.max + 1, shape)
    elif statistics is not None:
        x = statistics[0] + statistics[1] * rng.standard_normal(shape)
        x = x if value.base_channels is None else x - x[:, -1:]
        if kind == "table" and value.columns is not None:
            x = repair_rows(column_fields(value.columns, statistics[0].tolist()), x)
    else:
        low, high = value.range
        x = np.clip(low + (high - low) * rng.random(shape), low, high)
        # Later checks compare the normalisation with the range.
        x.flat[:2] = low, high
    return Split(x.astype(value.dtype), None if kind == "text" else _example_targets(value, shape, classes))


def _example_targets(value, shape, classes):
    """Return targets of the described form, of which all classes occur as far as possible."""
    labels = np.arange(NUM_EXAMPLES, dtype=np.int32) % classes
    if value.targets == NUMBERS:
        mean, std = np.array(value.target_statistics)
        return (mean + std * np.linspace(-1, 1, NUM_EXAMPLES)[:, None]).astype(np.float32)
    if value.targets == LABEL_SET:
        return labels[:, None] == np.arange(classes)
    if value.targets == LABEL_MAP:
        return np.broadcast_to(labels[:, None, None], shape[:3]).copy()
    return labels


def _draw_array(array, rng):
    """Return random values of an array, float64 `[NUM_EXAMPLES, size]`."""
    values = rng.uniform(array.low, array.high, (NUM_EXAMPLES, array.size))
    return values if array.dtype == "float32" else np.round(values)
