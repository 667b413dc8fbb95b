"""A callback that draws curves in a notebook while a process trains."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hetero_tf.base.errors import InputError
from hetero_tf.base.metrics import all_metrics, find_metric

if TYPE_CHECKING:
    from hetero_tf.run.callbacks import RoundEnd


class LiveCurves:
    """Draws the curve of each metric, and draws it again after every evaluated round.

    It needs matplotlib (the extra `plot`) and IPython, which every notebook has.

    Args:
        metrics: Names of metrics of `metrics.jsonl`, one panel each; empty: the selection metric of the recipe.
    """

    def __init__(self, metrics: Sequence[str] = ()):
        for metric in metrics:
            if find_metric(metric) is None:
                raise InputError(f"`metrics` must be among {', '.join(all_metrics())}. Received: {metric!r}")
        self.metrics = tuple(metrics)
        self.rows: list[dict] = []
        self._display = None

    def __call__(self, end: "RoundEnd") -> None:
        from IPython.display import Image, display

        metrics = self.metrics or (end.process.selection_metric,)
        if not any(metric in end.metrics for metric in metrics):
            return
        self.rows.append(end.metrics)
        picture = Image(self.draw(metrics))
        if self._display is None:
            self._display = display(picture, display_id=True)
        else:
            self._display.update(picture)

    def draw(self, metrics: Sequence[str]) -> bytes:
        """Return a PNG picture of the rows so far."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(4.5 * len(metrics), 2.8), dpi=100, layout="constrained", facecolor="white")
        for panel, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics):
            rows = [row for row in self.rows if metric in row]
            panel.plot([row["round"] for row in rows], [row[metric] for row in rows], "o-", markersize=3)
            panel.set(xlabel="round", title=metric)
            panel.grid(alpha=0.3)
        file = io.BytesIO()
        figure.savefig(file, format="png")
        return file.getvalue()
