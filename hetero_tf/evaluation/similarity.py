"""Similarity of the representations of two models, unit by unit: linear CKA and SVCCA.

The representation of a unit is its output on examples, averaged over positions: float64 `[examples, channels]`.

Reference: Kornblith et al. 2019 (arXiv 1905.00414) for CKA, Raghu et al. 2017 (arXiv 1706.05806) for SVCCA.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Share of its variance that a representation keeps in SVCCA.
VARIANCE = 0.99


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """Return linear CKA: 1 if one representation is a rotated and scaled copy of the other; NaN if one is constant."""
    if is_constant(first) or is_constant(second):
        return float("nan")
    grams = [centred @ centred.T for centred in (first - first.mean(0), second - second.mean(0))]
    return float(np.sum(grams[0] * grams[1]) / np.prod([np.linalg.norm(gram) for gram in grams]))


def svcca(first: np.ndarray, second: np.ndarray) -> float:
    """Return the mean canonical correlation of the main directions of two representations.

    NaN if one is constant, or if both have more directions than the examples allow: then any two have common ones.
    """
    if is_constant(first) or is_constant(second):
        return float("nan")
    directions = [_main_directions(representation) for representation in (first, second)]
    if sum(each.shape[1] for each in directions) > len(first) - 1:
        return float("nan")
    return float(np.linalg.svd(directions[0].T @ directions[1], compute_uv=False).mean())


def is_constant(representation: np.ndarray) -> bool:
    """Return True if a representation is the same for all examples, up to rounding."""
    return bool(np.ptp(representation, axis=0).max() <= 1e-7 * np.abs(representation).max())


MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {"linear CKA": linear_cka, "SVCCA": svcca}


def similarities(first: Iterable[np.ndarray], second: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Return `{measure: values [units of the first, units of the second]}`."""
    columns = list(second)
    return {name: np.array([[measure(x, y) for y in columns] for x in first]) for name, measure in MEASURES.items()}


def draw_into(figure: "Figure", matrices: dict[str, np.ndarray], units: Sequence[str], labels: tuple[str, str]) -> None:
    """Draw the similarities into an empty figure, a panel for each measure."""
    for panel, (name, matrix) in zip(figure.subplots(1, len(matrices)), matrices.items()):
        image = panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1, origin="lower")
        panel.set(title=name, ylabel=f"units of {labels[0]}", xlabel=f"units of {labels[1]}")
        panel.set_xticks(range(len(units)), units, rotation=90)
        panel.set_yticks(range(len(units)), units)
    figure.colorbar(image, ax=figure.axes, label="similarity")


def _main_directions(representation):
    """Return orthonormal columns: the first principal components, up to `VARIANCE` of the variance."""
    columns, values, _ = np.linalg.svd(representation - representation.mean(0), full_matrices=False)
    shares = np.cumsum(values**2) / np.sum(values**2)
    return columns[:, : np.searchsorted(shares, VARIANCE) + 1]
