"""One class for each example."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import LINE, join_items, shorten
from hetero_tf.data.targets import INVALID, BaseTargets, check_range, class_name, rank

# A larger share of one class in the test examples is worth a warning.
MAX_MAJORITY = 0.6
# Classes in one line.
MAX_CLASSES = 8


class Targets(BaseTargets):
    """One class for each example."""

    DTYPE, NDIM = np.int32, 1
    DESCRIPTION = "labels int32 [n]"

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_range(location, "label", split.y, dataset.classes)

    def describe(self, dataset: Any) -> list[str]:
        counts = _count_classes(dataset)
        total, order = int(counts.sum()), np.argsort(-counts, kind="stable")
        names = [class_name(dataset, int(label)) for label in order]
        shares = [f"{100 * counts[label] / total:.1f} %" for label in order]
        if len(names) <= MAX_CLASSES:
            return [join_items("classes: ", list(map(" ".join, zip(names, shares))), f" of {total:,} examples")]
        if counts.min() == counts.max():
            return [f"classes: {len(names):,} with {counts[0]:,} examples each"]
        extent = f"from {shares[-1]} ({names[-1]}) to {shares[0]} ({names[0]})"
        return [shorten(f"classes: {len(names):,}, {extent} of {total:,} examples", LINE)]

    def warn(self, dataset: Any, clients: int) -> list[str]:
        warnings, counts = [], _count_classes(dataset)
        rare = np.flatnonzero(counts < clients)
        if len(rare):
            name, count = class_name(dataset, int(rare[0])), counts[rare[0]]
            examples = f"{count:,} training example" + "s" * int(count != 1)
            warnings.append(
                f"class {name} has only {examples} for {clients:,} clients"
                if len(rare) == 1
                else f"{len(rare):,} classes have fewer training examples than there are clients, such as {name} with "
                f"{count:,} for {clients:,}"
            )
        name, share = _majority(dataset)
        if share > MAX_MAJORITY:
            warnings.append(f"always predicting {name} has an accuracy of {100 * share:.1f} % on the test examples")
        return warnings

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        name, share = _majority(dataset)
        return "global_accuracy", 100 * share, f"{name}, the most frequent class"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return labels

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        if outputs["class"] < 0:
            raise InputError(INVALID)
        numbers = outputs["probabilities"]
        # The predicted class of ordered classes is a median, which may not be the most probable one.
        best = sorted(np.argsort(-numbers, kind="stable"), key=lambda index: index != outputs["class"])
        return rank([class_names[index] for index in best], numbers[best], count)


def _majority(dataset):
    """Return the most frequent class of the training examples, and its share of the test examples."""
    label = int(_count_classes(dataset).argmax())
    return class_name(dataset, label), float(np.mean(dataset.test.y == label))


def _count_classes(dataset):
    """Return the number of training examples of each class, int `[classes]`."""
    return np.bincount(dataset.train.y, minlength=dataset.classes)
