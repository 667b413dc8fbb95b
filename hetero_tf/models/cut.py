"""Cuts sub-models out of the global variables by their shapes, and puts them back.

A variable of a sub-model is the global variable with some axes shortened; comparing two shapes says which. No
variable and no architecture is ever named here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """One cut dimension. Dimensions with equal `Axis` share their coordinates.

    Attributes:
        size: In the global model, without `extra`.
        sizes: In each sub-model, without `extra`.
        label: Whether this is the label axis, whose coordinates are the client's labels.
        extra: Rows behind the labels (the mask token) that every client gets and nobody merges.
        member: Whether this is the axis of an ensemble's networks, of which a client trains one at a time.
    """

    size: int
    sizes: tuple[int, ...]
    label: bool = False
    extra: int = 0
    member: bool = False


@dataclass(frozen=True)
class Cut:
    """Where the sub-models lie in the global model.

    Attributes:
        shapes: Global shape of every value, in model order.
        axes: For each value and dimension an `Axis`, or None where nothing is cut.
        contained: For each value and sub-model, whether the sub-model contains it at all.
    """

    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Axis | None, ...], ...]
    contained: tuple[tuple[bool, ...], ...]

    @property
    def distinct(self) -> tuple[Axis, ...]:
        """Every `Axis` once."""
        return tuple(dict.fromkeys(axis for axes in self.axes for axis in axes if axis is not None))

    def shape_in(self, submodel: int, position: int) -> tuple[int, ...]:
        """Shape of a value in a sub-model that contains it."""
        return tuple(
            size if axis is None else axis.sizes[submodel] + axis.extra
            for size, axis in zip(self.shapes[position], self.axes[position])
        )


def cut_of_shapes(shapes: dict, submodels: list[dict], label_axes: dict, classes: int, members: bool = False) -> Cut:
    """Derives a cut from shapes.

    Args:
        shapes: `{path: shape}` of every value at the global level with all `classes`.
        submodels: The same of each sub-model: narrower, perhaps with a shorter label axis or fewer variables.
        label_axes: `{path: {dimension: extra}}` as `find_label_axes` gives it.
        classes: Length of the global label axis.
        members: Whether the first dimension of every shape is the axis of an ensemble's networks.

    Raises:
        ValueError: A sub-model has a variable that the global model lacks, or a larger one.
    """
    for submodel in submodels:
        for path, shape in submodel.items():
            _check_inside(path, shape, shapes.get(path))
    axes, contained = [], []
    for path, shape in shapes.items():
        # What a sub-model lacks is cut nowhere: it is not there to be cut.
        sizes = list(zip(*(submodel.get(path, shape) for submodel in submodels)))
        contained.append(tuple(path in submodel for submodel in submodels))
        axes.append(
            tuple(
                Axis(size, sizes[dimension], member=True)
                if members and dimension == 0
                else _axis(size, sizes[dimension], label_axes.get(path, {}).get(dimension), classes)
                for dimension, size in enumerate(shape)
            )
        )
    return Cut(tuple(shapes.values()), tuple(axes), tuple(contained))


def _check_inside(path, shape, whole):
    if whole is None or len(shape) != len(whole) or any(size > full for size, full in zip(shape, whole)):
        raise ValueError(
            f"variable {path} of a sub-model does not lie inside the global one, which has shape {whole}. "
            f"Received: shape={shape}"
        )


def _axis(size, sizes, extra, classes):
    """The `Axis` of one dimension, None if every sub-model has all of it and it has no labels."""
    if extra is not None:
        return Axis(classes, tuple(value - extra for value in sizes), label=True, extra=extra)
    return None if all(value == size for value in sizes) else Axis(size, tuple(sizes))


def find_label_axes(two: dict, three: dict) -> dict[str, dict[int, int]]:
    """Finds the dimensions that grow with the number of classes.

    Args:
        two, three: `{path: shape}` of a model built with two and with three classes; the smallest width will do.

    Returns:
        `{path: {dimension: extra}}`, extra = rows beyond the classes.
    """
    label_axes = {}
    for path, shape in two.items():
        grown = {axis: size - 2 for axis, size in enumerate(shape) if size != three[path][axis]}
        if grown:
            label_axes[path] = grown
    return label_axes
