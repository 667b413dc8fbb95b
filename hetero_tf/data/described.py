"""Describe a data set without its examples, so that a trained model can be used without the data."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.data.columns import NOTATIONS, SCALES, Column
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.dates import DATE_EXAMPLES
from hetero_tf.data.named_arrays import NamedArray
from hetero_tf.data.targets import LABEL, LABEL_MAP, LABEL_SET, NUMBERS

# Number of random examples of a split, and their allowed dtypes.
NUM_EXAMPLES = 32
DTYPES = ("uint8", "int16", "int32", "float32", "float64")


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
    """Returns the description of a data set, ready for JSON."""
    x, is_float = dataset.train.x, dataset.kind == "images" and dataset.train.x.dtype != np.uint8
    return {
        "kind": dataset.kind,
        "shape": list(x.shape[1:]),
        "dtype": np.dtype(x.dtype).name,
        "range": [float(x.min()), float(x.max())] if is_float else None,
        "classes": dataset.classes,
        "source": dataset.source,
        "stand_in_for": dataset.stand_in_for,
        "vocabulary": dataset.vocabulary and list(dataset.vocabulary),
        "tokenizer": dataset.tokenizer,
        "rate": dataset.rate,
        "class_names": dataset.class_names and list(dataset.class_names),
        "columns": dataset.columns and [list(dataclasses.astuple(column)) for column in dataset.columns],
        "statistics": [list(map(float, one)) for one in dataset.feature_statistics]
        if dataset.kind in ("arrays", "table", "series")
        else None,
        "arrays": dataset.arrays and [list(dataclasses.astuple(array)) for array in dataset.arrays],
        "targets": dataset.targets,
        "target_statistics": [list(map(float, one)) for one in dataset.target_statistics]
        if dataset.targets == NUMBERS
        else None,
        "base_channels": dataset.base_channels and list(dataset.base_channels),
        "data": dataset.sha256,
    }


def from_description(value: dict[str, Any]) -> DescribedDataset:
    """Builds a data set with random examples from a description.

    Raises:
        InputError: The description is inconsistent.
        KeyError, TypeError, ValueError, AttributeError, OverflowError: It was not written by `describe`.
    """
    dtype, classes = value["dtype"], int(value["classes"])
    shape, words, columns = (NUM_EXAMPLES, *map(int, value["shape"])), value["vocabulary"], value["columns"]
    if dtype not in DTYPES or not isinstance(value["data"], str) or not isinstance(value["source"], str):
        raise ValueError(f"an entry has an invalid value, such as dtype {dtype!r}")
    check_memory(value["source"], 2 * int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize)
    rng = seeds.rng(0, "examples of a description")
    statistics = None if value["statistics"] is None else np.array(value["statistics"], np.float64)
    if statistics is not None and (statistics.shape != (2, shape[-1]) or not np.isfinite(statistics).all()):
        raise ValueError("its statistics do not match its features")

    # Descriptions of earlier versions have no arrays.
    arrays = value.get("arrays") and tuple(_build_array(*array) for array in value["arrays"])
    if arrays and sum(array.size for array in arrays) != shape[-1]:
        raise ValueError("its arrays do not match its values")
    base = _base_channels(value, shape, classes)
    draw = functools.partial(_draw_split, rng, value, shape, statistics, base, arrays)
    return DescribedDataset(
        train=draw(),
        test=draw(),
        classes=classes,
        source=value["source"],
        stand_in_for=value["stand_in_for"],
        vocabulary=_check_texts(words),
        class_names=_check_texts(value["class_names"]),
        columns=build_columns(columns),
        # Descriptions of earlier versions have no tokenizer and no rate.
        tokenizer=value.get("tokenizer", "words"),
        rate=value.get("rate"),
        base_channels=base,
        digest=value["data"],
        arrays=arrays,
        statistics=statistics,
        statistics_of_targets=_target_statistics(value, classes),
    )


def _draw_split(rng, value, shape, statistics, base, arrays):
    """Draws random examples of the described shape and dtype."""
    kind, classes, words = value["kind"], int(value["classes"]), value["vocabulary"]
    if kind in ("text", "sequences"):
        x = rng.integers(0, classes if kind == "text" else len(words), shape)
    elif arrays:
        x = np.concatenate([_draw_array(array, rng) for array in arrays], 1)
    elif value["dtype"] in ("uint8", "int16"):
        limits = np.iinfo(value["dtype"])
        x = rng.integers(limits.min, limits.max + 1, shape)
    elif statistics is not None:
        x = statistics[0] + statistics[1] * rng.standard_normal(shape)
        x = x if base is None else x - x[:, -1:]
    else:
        low, high = value["range"]
        x = np.clip(low + (high - low) * rng.random(shape), low, high)
        # Later checks compare the normalisation with the range.
        x.flat[:2] = low, high
    return Split(x.astype(value["dtype"]), None if kind == "text" else _example_targets(value, shape, classes))


def build_columns(columns: Sequence[Sequence] | None) -> tuple[Column, ...] | None:
    """Builds the columns of a table from their fields; None stays None."""
    return None if columns is None else tuple(_build_column(*column) for column in columns)


def _target_statistics(value, classes):
    """Returns the statistics of targets, float64 `[2, classes]`; None if the description has none."""
    if value.get("target_statistics") is None:
        return None
    statistics = np.array(value["target_statistics"], np.float64)
    if statistics.shape != (2, classes) or not np.isfinite(statistics).all() or (statistics[1] <= 0).any():
        raise ValueError("its statistics of targets are invalid")
    return statistics


def _base_channels(value, shape, classes):
    """Returns the channels that targets are relative to; None if the description has none."""
    if value.get("base_channels") is None:
        return None
    channels = tuple(map(int, value["base_channels"]))
    if len(channels) != classes or not set(channels) <= set(range(shape[-1])):
        raise ValueError("its base channels do not match its targets")
    return channels


def _example_targets(value, shape, classes):
    """Returns targets of the described form, of which all classes occur as far as possible."""
    form, labels = value.get("targets", LABEL), np.arange(NUM_EXAMPLES, dtype=np.int32) % classes
    if form == NUMBERS:
        mean, std = _target_statistics(value, classes)
        return (mean + std * np.linspace(-1, 1, NUM_EXAMPLES)[:, None]).astype(np.float32)
    if form == LABEL_SET:
        return labels[:, None] == np.arange(classes)
    if form == LABEL_MAP:
        return np.broadcast_to(labels[:, None, None], shape[:3]).copy()
    return labels


def _build_array(name, shape, dtype, low, high):
    """Build a `NamedArray` from its fields."""
    if not name.isidentifier() or dtype not in DTYPES or min(shape, default=1) < 1 or not low <= high:
        raise ValueError(f"array {name!r:.80} has invalid fields")
    return NamedArray(name, tuple(map(int, shape)), dtype, float(low), float(high))


def _draw_array(array, rng):
    """Return random values of an array, float64 `[NUM_EXAMPLES, size]`."""
    values = rng.uniform(array.low, array.high, (NUM_EXAMPLES, array.size))
    return values if array.dtype == "float32" else np.round(values)


def _build_column(name, categories, one_hot, date=None, fill=None, marks_missing=False, *formats):
    """Build a `Column` from its fields; earlier versions wrote only the first three."""
    (name, *_) = _check_texts([name, *([] if fill is None else [fill])])
    if date not in (None, *DATE_EXAMPLES) or formats not in (*itertools.product(NOTATIONS, SCALES), ()):
        raise ValueError(f"column {name!r:.80} has an unknown format")
    column = Column(name, _check_texts(categories) or (), bool(one_hot), date, fill, bool(marks_missing), *formats)
    if fill is not None:
        # Raises `InputError` for a fill value that is none of the column.
        column.encode("")
    return column


def _check_texts(values):
    """Returns names as a tuple; None stays None."""
    if values is not None and not (isinstance(values, list) and all(isinstance(one, str) for one in values)):
        raise ValueError(f"names must be texts, not {values!r:.80}")
    return values and tuple(values)
