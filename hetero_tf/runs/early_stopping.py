"""Early stopping of a run, from its recipe and its metrics."""

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.metrics import default_selection_metric, find_metric, task_metrics

# Values beyond it, and NaN, are never an improvement.
LARGEST = 1e100


@dataclass(frozen=True)
class Patience:
    """Early stopping of a run: the evaluations since the last improvement of a metric.

    Attributes:
        metric: Name of the metric that must improve.
        limit: Evaluations without an improvement after which the run ends; None: it never ends early.
        min_delta: Difference from the best value that an improvement exceeds.
        every: Rounds between two evaluations.
        best: The best value so far; None before the first finite one.
        waited: Number of evaluations since the best one; -1 before the first, which has no earlier value to improve on.
    """

    metric: str
    limit: int | None
    min_delta: float = 0.0
    every: int = 1
    best: float | None = None
    waited: int = -1

    def after(self, value: float | None) -> "Patience":
        """Return the count after another evaluation."""
        sign = -1 if (known := find_metric(self.metric)) and known.better == "lower" else 1
        is_finite = isinstance(value, numbers.Real) and abs(value) < LARGEST
        if value is not None and is_finite and (self.best is None or sign * (value - self.best) > self.min_delta):
            return replace(self, best=value, waited=0)
        return replace(self, waited=self.waited + 1)

    def count(self, rows: Iterable[dict]) -> "Patience":
        """Return the count after further rows of metrics.

        Only rounds that a run of any length evaluates count: an extended run has also evaluated its former last round.
        """
        counted = self
        for row in rows:
            if self.metric in row and row["round"] % self.every == 0:
                counted = counted.after(row[self.metric])
        return counted

    @property
    def is_over(self) -> bool:
        """True if the run ends."""
        return self.limit is not None and self.waited >= self.limit


def is_stopped_early(keys: Mapping[str, Any], rows: Sequence[dict]) -> bool:
    """Return True if early stopping ends a run after its last row."""
    names = ("early_stopping.patience", "evaluate.every", "early_stopping.min_delta")
    patience, every, min_delta = map(keys.get, names)
    metric = keys.get("early_stopping.metric") or selection_metric(keys, rows)
    # The recipe of a run with plug-in modules may be read without checks.
    if not (isinstance(patience, int) and isinstance(every, int) and isinstance(min_delta, int | float) and every > 0):
        return False
    return Patience(str(metric), patience, min_delta, every).count(rows).is_over


def selection_metric(keys: Mapping[str, Any], rows: Iterable[dict]) -> str:
    """Return the metric that selects the best round; "" for the default one of a plug-in that is not registered."""
    if keys.get("evaluate.best"):
        return str(keys["evaluate.best"])
    names = {"inputs": keys.get("input.name"), "tasks": keys.get("task.name", "classification")}
    if any(name not in registry.names(kind) for kind, name in names.items()):
        return ""
    is_validated = any(name.startswith("validation_") for row in rows for name in row)
    return default_selection_metric(task_metrics(*names.values()), is_validated)
