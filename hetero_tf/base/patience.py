"""Patience of early stopping: counts the evaluations since the last improvement of a metric."""

import numbers
from dataclasses import dataclass

from hetero_tf.base.metrics import find_metric

# Values beyond it, and NaN, are never an improvement.
LARGEST = 1e100


@dataclass(frozen=True)
class Patience:
    """Evaluations since the last improvement of a metric.

    Attributes:
        best: The best value so far; None before the first finite one.
        waited: Number of evaluations since the best one; -1 before the first, which has no earlier value to improve on.
    """

    best: float | None = None
    waited: int = -1

    def after(self, metric: str, value: float | None, min_delta: float) -> "Patience":
        """Return the count after another evaluation.

        Args:
            metric: Name of the metric.
            value: Its value; None, NaN and infinity are no improvement.
            min_delta: Difference from the best value that an improvement exceeds.
        """
        known = find_metric(metric)
        sign = -1 if known is not None and known.better == "lower" else 1
        if not isinstance(value, numbers.Real) or not abs(value) < LARGEST:
            return Patience(self.best, self.waited + 1)
        if self.best is None or sign * (value - self.best) > min_delta:
            return Patience(value, 0)
        return Patience(self.best, self.waited + 1)
