"""Results of each class on the test set: confusion matrix, recall and precision."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetero_tf.base.console import format_table
from hetero_tf.base.formatting import escape_line, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Rows of the printed table, and of a matrix with names; of a matrix with numbers; characters of a name in a figure.
MAX_ROWS, MAX_CELLS, MAX_NAME = 30, 12, 20


@dataclass(frozen=True)
class ClassResults:
    """Confusion of the classes of a model.

    Attributes:
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

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells of a table: its head, and a row for each class, the lowest recall first."""
        wrong = self.matrix * ~np.eye(len(self.names), dtype=bool)
        rows: list[tuple[str, ...]] = [("class", "examples", "recall %", "precision %", "most often predicted instead")]
        order = np.argsort(np.where(np.isnan(self.recall), np.inf, self.recall), kind="stable")
        for index in order[:MAX_ROWS]:
            other = int(wrong[index].argmax())
            instead = f"{self.names[other]} ({wrong[index, other]:,})" if wrong[index].any() else "-"
            numbers = (_format(self.recall[index]), _format(self.precision[index]))
            rows.append((self.names[index], f"{self.matrix[index].sum():,}", *numbers, instead))
        return rows

    @property
    def omitted(self) -> str:
        """Sentence on the classes without a row; "" if there are none."""
        count = len(self.names) - MAX_ROWS
        return f"and {count} classes with a higher recall" if count > 0 else ""

    def to_text(self) -> str:
        """Return the table of `rows`."""
        return "\n".join([format_table(self.rows()), *([self.omitted] if self.omitted else [])])

    def to_json(self) -> dict:
        """Return "names", "confusion_matrix", "recall" and "precision" as JSON values; None for NaN."""
        return {
            "names": list(self.names),
            "confusion_matrix": self.matrix.tolist(),
            "recall": [None if np.isnan(value) else float(value) for value in self.recall],
            "precision": [None if np.isnan(value) else float(value) for value in self.precision],
        }

    def draw_into(self, figure: "Figure") -> None:
        """Draw the matrix into an empty figure: a row for each class, with the shares of its predictions.

        Up to `MAX_CELLS` classes the cells have the shares in percent; up to `MAX_ROWS` the axes have the class names.
        """
        panel, count = figure.subplots(), len(self.names)
        shares = np.nan_to_num(_percent(self.matrix, self.matrix.sum(1, keepdims=True)))
        image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=100)
        figure.colorbar(image, ax=panel, label="share of the examples of the class (%)")
        panel.set(xlabel="predicted class", ylabel="class")
        panel.grid(False)
        if count <= MAX_ROWS:
            names = [shorten(escape_line(name), MAX_NAME) for name in self.names]
            # Do not parse a dollar sign in a name as a formula.
            panel.set_xticks(range(count), names, rotation=90, parse_math=False)
            panel.set_yticks(range(count), names, parse_math=False)
        for (row, column), share in np.ndenumerate(shares) if count <= MAX_CELLS else ():
            text, color = f"{share:.0f}" if self.matrix[row, column] else "", "white" if share > 50 else "black"
            panel.text(column, row, text, ha="center", va="center", color=color, fontsize=8)


def _percent(part, whole):
    with np.errstate(invalid="ignore"):
        return 100 * part / whole


def _format(value):
    return "-" if np.isnan(value) else f"{value:.1f}"
