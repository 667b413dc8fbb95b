"""One or more numbers for each example."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.inspection import MAX_COLUMNS, outlier, shorten
from hetero_tf.data.targets import INVALID, BaseTargets, check_width, number_classes, shortest_number

# Groups of equal size, for partitions that divide by labels.
GROUPS = 10


class Targets(BaseTargets):
    """One or more numbers for each example."""

    DTYPE, NDIM = np.float32, 2
    DESCRIPTION = "numbers float32 [n, targets]"

    def check(self, location: str, split: Any, dataset: Any) -> None:
        check_width(location, split, dataset)
        if not np.isfinite(split.y).all():
            row, column = np.argwhere(~np.isfinite(split.y))[0]
            raise InputError(f"{location}: targets must be finite. Received: {split.y[row, column]} in row {row}")

    def strata(self, train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
        edges = np.unique(np.quantile(train[:, 0], np.arange(1, GROUPS) / GROUPS))
        return number_classes([np.searchsorted(edges, y[:, 0], "right") for y in (train, *others)])

    def describe(self, dataset: Any) -> list[str]:
        y = dataset.train.y
        statistics = zip(_target_names(dataset), y.min(0), y.max(0), *dataset.target_statistics)
        lines = [
            f"target: {shorten(name)}, {low:.6g} to {high:.6g}, mean {mean:.4g}, standard deviation {std:.4g}"
            for name, low, high, mean, std in statistics
        ]
        more = [f"  and {len(lines) - MAX_COLUMNS:,} more targets"] if len(lines) > MAX_COLUMNS else []
        return lines[:MAX_COLUMNS] + more

    def warn(self, dataset: Any, clients: int) -> list[str]:
        columns = zip(_target_names(dataset), dataset.train.y.T, *dataset.target_statistics)
        return list(filter(None, (outlier(f"target {shorten(name)!r}", *values) for name, *values in columns)))

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        mean, _ = dataset.target_statistics
        predictions = {"the mean of the training examples": mean, **_last_values(dataset)}
        if getattr(dataset.codec, "base_channels", None) is not None:
            predictions = {
                "the last value of the window and the mean change": mean,
                "the last value of the window": 0.0,
            }
        errors = {name: float(np.sqrt(np.mean((dataset.test.y - y) ** 2))) for name, y in predictions.items()}
        best = min(errors, key=errors.__getitem__)
        return "rmse", errors[best], best

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> np.ndarray:
        mean, std = np.array(statistics)
        return (mean + std * np.linspace(-1, 1, len(labels))[:, None]).astype(np.float32)

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        return tuple(class_names)

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        if np.isnan(outputs["values"]).any():
            raise InputError(INVALID)
        return [shortest_number(value) for value in outputs["values"]]

    def format(self, fields: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {value:.6g}" for name, value in fields.items())


def _target_names(dataset):
    return dataset.class_names or [str(index) for index in range(dataset.classes)]


def _last_values(dataset):
    """Return the last values of the test windows as predictions by name; empty if the targets are not forecasts."""
    channels = getattr(dataset.codec, "channels", None)
    if channels is None or dataset.class_names is None:
        return {}
    forecasts = [name.rpartition(" +")[0] for name in dataset.class_names]
    if not set(forecasts) <= set(channels):
        return {}
    return {"the last value of the window": dataset.test.x[:, -1, [channels.index(name) for name in forecasts]]}
