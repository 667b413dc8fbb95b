"""Cuts of the global variables, derived from shapes.

A variable of a sub-model is the global variable with some axes shortened. The shapes alone define the cut: the code
names no variable and no architecture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.errors import InputError

# The sizes of each part of an axis in the global model and in a smaller one, such as of the branches of a Concatenate.
Parts = tuple[tuple[int, int], ...]
# By the size of an axis in both models.
PartsOfSizes = Mapping[tuple[int, int], Parts]


@dataclass(frozen=True)
class Axis:
    """One cut dimension. Dimensions with equal `Axis` share their coordinates.

    Attributes:
        size: In the global model, without `extra`.
        sizes: In each sub-model, without `extra`.
        label: Whether this is the label axis, whose coordinates are the client's labels.
        extra: Rows after the labels (the mask token) that every client gets and that are never merged.
        member: Whether this is the axis of an ensemble's networks; a client trains one of them at a time.
        parts: For each sub-model the parts of the axis, which are cut one by one; empty for an axis of one part.
    """

    size: int
    sizes: tuple[int, ...]
    label: bool = False
    extra: int = 0
    member: bool = False
    parts: tuple[Parts, ...] = ()


@dataclass(frozen=True)
class Cut:
    """Coordinates of the sub-models in the global model.

    Attributes:
        shapes: Global shape of every value, in model order.
        axes: For each value and dimension an `Axis`, or None for a dimension that is not cut.
        contained: For each value and sub-model, whether the sub-model contains it at all.
    """

    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Axis | None, ...], ...]
    contained: tuple[tuple[bool, ...], ...]

    @property
    def distinct(self) -> tuple[Axis, ...]:
        """Every distinct `Axis`."""
        return tuple(dict.fromkeys(axis for axes in self.axes for axis in axes if axis is not None))

    def shape_in(self, submodel: int, position: int) -> tuple[int, ...]:
        """Return the shape of a value in a sub-model that contains it."""
        return tuple(
            size if axis is None else axis.sizes[submodel] + axis.extra
            for size, axis in zip(self.shapes[position], self.axes[position])
        )

    def select(self, positions: Sequence[int]) -> "Cut":
        """Return the cut of the values at some positions; in an ensemble, of their part in one network."""
        shapes, axes = [], []
        for position in positions:
            is_member = [axis is not None and axis.member for axis in self.axes[position]]
            shapes.append(tuple(1 if member else size for size, member in zip(self.shapes[position], is_member)))
            axes.append(tuple(None if member else axis for axis, member in zip(self.axes[position], is_member)))
        return Cut(tuple(shapes), tuple(axes), tuple(self.contained[position] for position in positions))


def cut_of_shapes(
    shapes: dict,
    submodels: dict[str, dict],
    label_axes: dict,
    classes: int,
    members: bool = False,
    parts: PartsOfSizes | None = None,
) -> Cut:
    """Derive a cut from shapes.

    Args:
        shapes: `{path: shape}` of every value at the global level with all `classes`.
        submodels: The same by level of each sub-model: narrower, with a shorter label axis or fewer variables.
        label_axes: `{path: {dimension: extra}}`, the result of `find_label_axes`.
        classes: Length of the global label axis.
        members: Whether the first dimension of every shape is the axis of an ensemble's networks.
        parts: Axes of several parts, by their sizes.

    Raises:
        InputError: See `check_parts`.
    """
    check_parts(shapes, submodels)
    # For each value: the axes that some sub-model shortens, and the sub-models that have the value.
    axes, contained = [], []
    for path, shape in shapes.items():
        # Variables that a sub-model lacks are not cut.
        sizes = list(zip(*(submodel.get(path, shape) for submodel in submodels.values())))
        contained.append(tuple(path in submodel for submodel in submodels.values()))
        axes.append(
            tuple(
                Axis(size, sizes[dimension], member=True)
                if members and dimension == 0
                else _axis(size, sizes[dimension], label_axes.get(path, {}).get(dimension), classes, parts or {})
                for dimension, size in enumerate(shape)
            )
        )
    return Cut(tuple(shapes.values()), tuple(axes), tuple(contained))


def check_parts(shapes: dict, submodels: dict[str, dict]) -> None:
    """Refuse sub-models with a variable that the global model lacks, or that is larger than the global one.

    Args:
        shapes, submodels: See `cut_of_shapes`.

    Raises:
        InputError: Names the level and the variable.
    """
    for level, submodel in submodels.items():
        for path, shape in submodel.items():
            full = shapes.get(path)
            if full is None or len(shape) != len(full) or any(size > most for size, most in zip(shape, full)):
                raise InputError(
                    f"level {level}: the model must have the layers of the global one, none of them larger; {path} has "
                    f"the shape {full} there. Received: shape={shape}"
                )


def _axis(size, sizes, extra, classes, parts):
    """Return the `Axis` of one dimension; None if every sub-model has all of it and it has no labels."""
    if extra is not None:
        return Axis(classes, tuple(value - extra for value in sizes), label=True, extra=extra)
    if all(value == size for value in sizes):
        return None
    several = tuple(parts.get((size, value), ((size, value),)) for value in sizes)
    return Axis(size, tuple(sizes), parts=several if any(len(each) > 1 for each in several) else ())


def first_entries(parts: Parts) -> np.ndarray:
    """Return the global coordinates of the first entries of each part, int32 [entries]."""
    starts = np.cumsum([0] + [full for full, _ in parts[:-1]])
    return np.concatenate([start + np.arange(size) for start, (_, size) in zip(starts, parts)]).astype(np.int32)


def find_label_axes(two: dict, others: dict) -> dict[str, dict[int, int]]:
    """Find the dimensions that grow with the number of classes.

    Args:
        two, others: `{path: shape}` of a model built with two and with another number of classes, at any width.

    Returns:
        `{path: {dimension: extra}}`, extra = rows beyond the classes.
    """
    grown = {
        path: {axis: size - 2 for axis, size in enumerate(shape) if size != others[path][axis]}
        for path, shape in two.items()
    }
    return {path: axes for path, axes in grown.items() if axes}
