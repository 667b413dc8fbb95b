"""Any number of labels for each example."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import join_items
from hetero_tf.data.targets import INVALID, BaseTargets, check_width, class_name, number_classes, shortest_number

# Labels in one line.
MAX_LABELS = 8


class Targets(BaseTargets):
    """Any number of labels for each example."""

    DTYPE, NDIM = np.bool_, 2
    DESCRIPTION = "sets of labels bool [n, labels]"

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_width(location, split, dataset)

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(train.sum(0), kind="stable")
        return number_classes([np.where(y.any(1), order[y[:, order].argmax(1)], y.shape[1]) for y in (train, *others)])

    def describe(self, dataset: Any) -> list[str]:
        shares = dataset.train.y.mean(0)
        items = [f"{class_name(dataset, int(label))} {100 * shares[label]:.1f} %" for label in np.argsort(-shares)]
        return [join_items("labels: ", items, f" of {len(dataset.train.y):,} examples")]

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        # The most frequent labels, as many as have the best micro F1 on the training examples.
        order = np.argsort(-dataset.train.y.mean(0), kind="stable")
        labels = max((order[:count] for count in range(1, len(order) + 1)), key=lambda some: _f1(dataset.train.y, some))
        names = ", ".join(class_name(dataset, int(label)) for label in labels[:MAX_LABELS])
        return "micro_f1", 100 * _f1(dataset.test.y, labels), f"{names}{', ...' * (len(labels) > MAX_LABELS)}"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return labels[:, None] == np.arange(classes)

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        return "labels", "probabilities"

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        values = outputs["probabilities"]
        if np.isnan(values).any():
            raise InputError(INVALID)
        present = [index for index in np.argsort(-values, kind="stable") if outputs["labels"][index] == 1]
        return [[class_names[index] for index in present], [shortest_number(values[index]) for index in present]]

    def format(self, fields: Mapping[str, Any]) -> str:
        labels = zip(fields["labels"], fields["probabilities"])
        return ", ".join(f"{name} {100 * share:.1f} %" for name, share in labels) or "no label"


def _f1(sets, labels):
    """Return the micro F1 score of predicting the same labels for all examples."""
    return 2 * sets[:, labels].sum() / max(len(labels) * len(sets) + sets.sum(), 1)
