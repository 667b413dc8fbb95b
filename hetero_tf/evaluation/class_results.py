"""Results of each class on the test set: confusion matrix, recall and precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetero_tf.base.console import format_table
from hetero_tf.base.errors import require_modules
from hetero_tf.base.files import replace_file

# Rows of the printed table.
MAX_ROWS = 30


@dataclass(frozen=True)
class ClassResults:
    """Confusion of the classes of a model.

    Attributes:
        names: Name of each class.
        matrix: int64 `[classes, classes]`, the number of test examples (or pixels) by class and predicted class.
    """

    names: tuple[str, ...]
    matrix: np.ndarray

    @classmethod
    def of(cls, targets: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> "ClassResults":
        """Count the pairs of class and predicted class, integers of any equal shape."""
        pairs = targets.reshape(-1).astype(np.int64) * len(names) + predicted.reshape(-1)
        counts = np.bincount(pairs, minlength=len(names) ** 2)
        return cls(tuple(names), counts.reshape(len(names), len(names)))

    @property
    def recall(self) -> np.ndarray:
        """Percentage of the examples of each class that are predicted as it; NaN without examples."""
        return _percent(np.diag(self.matrix), self.matrix.sum(1))

    @property
    def precision(self) -> np.ndarray:
        """Percentage of the predictions of each class that are right; NaN without predictions."""
        return _percent(np.diag(self.matrix), self.matrix.sum(0))

    def to_text(self) -> str:
        """Return a table with a row for each class, the lowest recall first."""
        wrong = self.matrix * ~np.eye(len(self.names), dtype=bool)
        rows = [("class", "examples", "recall %", "precision %", "most often predicted instead")]
        order = np.argsort(np.where(np.isnan(self.recall), np.inf, self.recall), kind="stable")
        for index in order[:MAX_ROWS]:
            other = int(wrong[index].argmax())
            instead = f"{self.names[other]} ({wrong[index, other]:,})" if wrong[index].any() else "-"
            numbers = (_format(self.recall[index]), _format(self.precision[index]))
            rows.append((self.names[index], f"{self.matrix[index].sum():,}", *numbers, instead))
        hidden = len(self.names) - MAX_ROWS
        return format_table(rows) + (f"\nand {hidden} classes with a higher recall" if hidden > 0 else "")

    def to_json(self) -> dict:
        """Return "names", "confusion_matrix", "recall" and "precision" as JSON values; None for NaN."""
        return {
            "names": list(self.names),
            "confusion_matrix": self.matrix.tolist(),
            "recall": [None if np.isnan(value) else float(value) for value in self.recall],
            "precision": [None if np.isnan(value) else float(value) for value in self.precision],
        }

    def draw(self, path: Path) -> None:
        """Draw the matrix into a PNG file, atomically: one row for each class, with the shares of its predictions.

        Raises:
            InputError: matplotlib is not installed.
            DiskProblem: The operating system failed to write.
        """
        require_modules("--draw", ["matplotlib"], "plot")
        from matplotlib.figure import Figure

        size = float(np.clip(0.35 * len(self.names), 4, 14))
        figure = Figure(figsize=(size + 1.5, size), dpi=120, layout="constrained")
        panel = figure.subplots()
        shares = _percent(self.matrix, self.matrix.sum(1, keepdims=True))
        image = panel.imshow(np.nan_to_num(shares), cmap="Blues", vmin=0, vmax=100)
        figure.colorbar(image, ax=panel, label="share of the examples of the class (%)")
        panel.set(xlabel="predicted class", ylabel="class")
        if len(self.names) <= MAX_ROWS:
            ticks = range(len(self.names))
            # Do not parse a dollar sign in a name as a formula.
            panel.set_xticks(ticks, self.names, rotation=90, parse_math=False)
            panel.set_yticks(ticks, self.names, parse_math=False)
            for (row, column), count in np.ndenumerate(self.matrix):
                shade = "white" if shares[row, column] > 50 else "black"
                panel.text(
                    column, row, f"{count:,}" if count else "", ha="center", va="center", color=shade, fontsize=7
                )
        with replace_file(path) as file:
            figure.savefig(file, format="png")


def _percent(part, whole):
    with np.errstate(invalid="ignore"):
        return 100 * part / whole


def _format(value):
    return "-" if np.isnan(value) else f"{value:.1f}"
