"""Describe a data set without its examples, so that a trained model can be used without the data."""

import dataclasses
from typing import Any

import numpy as np

from hetero_tf.base import seeds
from hetero_tf.base.errors import InputError
from hetero_tf.base.hardware import check_memory
from hetero_tf.base.typed_json import from_json
from hetero_tf.data import targets
from hetero_tf.data.codecs import Positive, build_fields, stored_shape
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.targets import NUMBERS, Rows

# Number of random examples of a split.
NUM_EXAMPLES = 32


@dataclasses.dataclass(frozen=True)
class Description:
    """The parts of a data set without its examples, see `describe`; `data` is their digest."""

    fields: tuple[Any, ...]
    classes: Positive
    source: str
    stand_in_for: str | None
    class_names: tuple[str, ...] | None
    targets: str
    target_statistics: Rows | None
    data: str
    outputs: tuple[Any, ...] = ()

    def __post_init__(self):
        rows = self.target_statistics
        is_valid = (rows is None) == (self.targets != NUMBERS) and self.fields
        if not is_valid or rows is not None and ({*map(len, rows)} != {self.classes} or min(rows[1]) <= 0):
            raise ValueError("target_statistics and fields must fit the other values")


@dataclasses.dataclass(frozen=True)
class DescribedDataset(Dataset):
    """A data set made from a description; its examples are random values of the described fields."""

    statistics_of_targets: np.ndarray | None = None

    @property
    def target_statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each number to predict, see `Dataset`."""
        if self.statistics_of_targets is None:
            raise InputError(f"{self.source}: its description has no statistics of targets")
        return self.statistics_of_targets[0], self.statistics_of_targets[1]


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the description of a data set, ready for JSON."""
    is_numbers = dataset.targets == NUMBERS
    return {
        "fields": [field.describe(is_exported=False) for field in dataset.fitted_fields],
        **{name: getattr(dataset, name) for name in ("classes", "source", "stand_in_for", "class_names", "targets")},
        "target_statistics": [row.tolist() for row in dataset.target_statistics] if is_numbers else None,
        "data": dataset.sha256,
        "outputs": [field.describe(is_exported=False) for field in dataset.outputs],
    }


def from_description(value: Any, source: object, advice: str = "") -> DescribedDataset:
    """Build a data set with random examples from a description.

    Args:
        value: Result of `describe`.
        source, advice: See `typed_json.from_json`.

    Raises:
        InputError: The description is inconsistent.
    """
    described = from_json(Description, value, source, advice)
    fields, outputs = (build_fields(each, source, advice) for each in (described.fields, described.outputs))
    statistics = described.target_statistics
    shape, form = (NUM_EXAMPLES, *stored_shape(fields)), targets.find(described.targets)
    # Some codecs draw numbers of 64 bits.
    check_memory(described.source, 2 * 8 * int(np.prod(shape, dtype=np.float64)))
    rng, labels = seeds.rng(0, "examples of a description"), np.arange(NUM_EXAMPLES, dtype=np.int32) % described.classes

    def draw_packed(fields):
        return np.concatenate([field.codec.draw(rng, NUM_EXAMPLES) for field in fields], 1)

    def draw():
        x = draw_packed(fields) if fields[0].codec.IS_PACKED else fields[0].codec.draw(rng, NUM_EXAMPLES)
        y = form.draw(labels, described.classes, shape, statistics)
        return Split(x, draw_packed(outputs).astype(np.float64) if outputs else y)

    return DescribedDataset(
        *(draw(), draw(), fields, described.classes, described.source),
        stand_in_for=described.stand_in_for,
        class_names=described.class_names,
        outputs=outputs,
        digest=described.data,
        statistics_of_targets=None if statistics is None else np.array(statistics),
    )
