"""One class for each pixel of an image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.targets import INVALID, BaseTargets, check_range, class_name, number_classes, rank

# Field of a prediction with the path of its map, see `export.prediction_files`.
MAP = "map"


class Targets(BaseTargets):
    """One class for each pixel."""

    DTYPE, NDIM = np.int32, 3
    DESCRIPTION = "maps of labels int32 [n, height, width]"
    RANKED = ("class", "share")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_range(location, "label", split.y, dataset.classes)
        if split.y.shape[1:] != split.x.shape[1:3]:
            raise InputError(f"{location}: label maps must have the size of the images. Received: {split.y.shape[1:]}")

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        return number_classes([np.array([_main_class(one) for one in y]) for y in (train, *others)])

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        label = int(np.bincount(dataset.train.y.reshape(-1)).argmax())
        occurring = {label, *np.unique(dataset.test.y).tolist()}
        iou = float(np.mean(dataset.test.y == label)) / len(occurring)
        return "mean_iou", 100 * iou, f"{class_name(dataset, label)}, the most frequent class"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        return np.broadcast_to(labels[:, None, None], shape[:3]).copy()

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        if (outputs["class"] < 0).any():
            raise InputError(INVALID)
        counts = np.bincount(outputs["class"].reshape(-1), minlength=len(class_names))
        shares = (counts / outputs["class"].size).astype(np.float32)
        best = np.argsort(-shares, kind="stable")[: np.count_nonzero(counts)]
        return rank([class_names[index] for index in best], shares[best], count)

    def format(self, fields: Mapping[str, Any]) -> str:
        return super().format({name: value for name, value in fields.items() if name != MAP})


def _main_class(label_map):
    counts = np.bincount(label_map.reshape(-1))
    return int(counts[1:].argmax() + 1) if counts[1:].any() else 0
