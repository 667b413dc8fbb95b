"""Forms of the targets of examples: each module has all that depends on one form, from its checks to its predictions.

The dtype and shape of `Split.y` determine the form. Each module has a class `Targets`.
"""

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import shorten

LABEL, NUMBERS, LABEL_SET, LABEL_MAP, POSITIONS = "label", "numbers", "label_set", "label_map", "positions"
INVALID = "a sentence must contain a word"
# Statistics of numbers: the mean and the standard deviation of each of them.
Rows = tuple[tuple[float, ...], tuple[float, ...]]


class BaseTargets:
    """Defaults of a form of targets.

    Attributes:
        DTYPE, NDIM: Type and number of axes of `Split.y`; None if there is none.
        DESCRIPTION: The stored targets, for messages.
        RANKED: Names of the fields of a prediction that has a value for each of the likeliest classes.
    """

    DTYPE: ClassVar[Any]
    NDIM: ClassVar[int]
    DESCRIPTION: ClassVar[str]
    RANKED: ClassVar[tuple[str, str]] = ("class", "probability")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        """Raise `InputError` for targets of this form with invalid values."""

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        """Return one class for each example of each split, see `targets.strata`."""
        return [train, *others]

    def describe(self, dataset: Any) -> list[str]:
        """Return lines of at most 80 characters about the training targets."""
        return []

    def warn(self, dataset: Any, clients: int) -> list[str]:
        """Return sentences about targets that a model cannot learn well."""
        return []

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        """Return `(metric, its value on the test examples, prediction)` of a simple prediction."""
        raise NotImplementedError

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Rows | None) -> Any:
        """Return targets in which all classes occur.

        Args:
            labels: Class of each example, int32 `[n]`.
            classes: Number of classes or targets.
            shape: Shape of the stored examples.
            statistics: Statistics of numbers.
        """
        raise NotImplementedError

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        """Return the names of the fields of a prediction, most likely first.

        Args:
            class_names: Names of the classes or targets.
            classes: Their number.
            top: Maximum number of classes or words.
        """
        suffixes = ["", *(f"_{rank}" for rank in range(2, min(top, classes) + 1))]
        return tuple(name + suffix for suffix in suffixes for name in self.RANKED)

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        """Return the values of the fields of a prediction; a map may have fewer classes than ranks.

        Args:
            outputs: Outputs of the signature for one item, NumPy arrays without the batch axis.
            class_names: Names of the classes or targets.
            count: Number of ranks.

        Raises:
            InputError: The item is invalid for the model, such as a text without a word.
        """
        raise NotImplementedError

    def format(self, fields: Mapping[str, Any]) -> str:
        """Return the fields of a prediction as one line, such as "cat 93.1 %, dog 4.2 %"."""
        values = [value if isinstance(value, list) else [value] for value in fields.values() if value is not None]
        rankings = zip(*(zip(names, shares) for names, shares in zip(values[::2], values[1::2])))
        return "; ".join(", ".join(f"{name} {100 * share:.1f} %" for name, share in ranking) for ranking in rankings)


@cache
def find(form: str) -> BaseTargets:
    """Return the targets of a form.

    Raises:
        InputError: The form is unknown.
    """
    if form not in names():
        raise InputError(f"targets must be one of {', '.join(names())}. Received: {form!r:.80}")
    return importlib.import_module(f"{__name__}.{form}").Targets()


def names() -> tuple[str, ...]:
    """Return the names of all forms."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def form_of(y: np.ndarray | None) -> str | None:
    """Return the form of targets; None if they have none of these forms."""
    if y is None:
        return POSITIONS
    return next((form for form in names() if (y.dtype, y.ndim) == (find(form).DTYPE, find(form).NDIM)), None)


def strata(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return one class for each example, for partitions and test splits by class.

    Labels are their own classes. Examples with numbers are divided into groups by the quantiles of the first number. An
    example with several labels has the rarest of them, and one without labels a further class. A label map has its most
    frequent class, where class 0, the background, counts only if it is the only one. The classes that occur in the
    training split are numbered from 0.

    Args:
        train: Targets of the training split, from which quantiles and frequencies are computed.
        others: Targets of other splits.

    Returns:
        int32 `[n]` of each split; for text the words int32 `[rows, length]` unchanged.
    """
    return find(form_of(train) or LABEL).strata(train, *others)


def number_classes(classes: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Number the classes of the first split from 0; a class that only another split has becomes a neighbour."""
    known = np.unique(classes[0])
    return [np.minimum(np.searchsorted(known, each), len(known) - 1).astype(np.int32) for each in classes]


def check_range(location: str, item: str, values: np.ndarray, classes: int) -> None:
    """Raise `InputError` for whole numbers outside 0..classes - 1."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= classes:
        invalid = low if low < 0 else high
        first = int(np.flatnonzero(values.reshape(-1) == invalid)[0])
        raise InputError(
            f"{location}: every {item} must be in 0..{classes - 1}. Received: {invalid} at position {first}"
        )


def check_width(location: str, split: Any, dataset: Any) -> None:
    """Raise `InputError` unless there is a column for each target."""
    if split.y.shape[1] != dataset.classes:
        raise InputError(
            f"{location}: expected {dataset.classes} targets per {dataset.codec.EXAMPLE}. Received: {split.y.shape[1]}"
        )


def class_name(dataset: Any, label: int) -> str:
    """Return the name of a class, shortened, or its number."""
    return str(label) if dataset.class_names is None else shorten(dataset.class_names[label])


def shortest_number(number: np.float32) -> float:
    """Return the number with the fewest decimals that is the same float32."""
    return float(str(number))


def rank(names: Sequence[str], numbers: np.ndarray, count: int) -> list[Any]:
    """Return the names and numbers of the first `count` ranks, in turn."""
    return [value for name, number in zip(names[:count], numbers) for value in (name, shortest_number(number))]
