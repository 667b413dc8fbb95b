"""Cuts sub-models out of the global variables by their shapes, and puts them back.

A variable of a sub-model is the global variable with some axes shortened; comparing two shapes says which. No
variable and no architecture is ever named here.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf


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


def coordinates(
    cut: Cut,
    submodel: int,
    choose: Callable,
    round: tf.Tensor,
    client: tf.Tensor,
    seed: tf.Tensor,
    labels: tf.Tensor,
    member: tf.Tensor,
) -> dict[Axis, tf.Tensor]:
    """Which global coordinates one client's sub-model has.

    Args:
        submodel: Position of the sub-model.
        choose: Function of a plug-in of `methods.submodels`.
        round, client, seed: Scalar int32.
        labels: int32 [label axis], the client's labels, -1 = padding.
        member: Scalar int32, which network of an ensemble is trained.

    Returns:
        `{Axis: int32 [size in the sub-model + extra]}`; -1 marks rows that hold no global entry.
    """
    chosen = {}
    for axis in cut.distinct:
        if axis.label:
            chosen[axis] = tf.concat([labels, tf.range(axis.size, axis.size + axis.extra)], 0)
        elif axis.member:
            chosen[axis] = tf.reshape(member, [1])
        else:
            chosen[axis] = choose(axis.size, axis.sizes[submodel], round, client, seed)
    return chosen


def take(cut: Cut, submodel: int, weights: list[tf.Tensor], where: dict[Axis, tf.Tensor]) -> list[tf.Tensor]:
    """Takes a sub-model's values; padding rows repeat row 0 (nothing reads them and nobody merges them).

    Args:
        submodel: Position of the sub-model.
        weights: Global values in the order of `cut.shapes`.
        where: As `coordinates` gives it.

    Returns:
        The values that the sub-model contains, each in its own shape.
    """
    return [
        take_value(value, axes, where)
        for value, axes, contained in zip(weights, cut.axes, cut.contained)
        if contained[submodel]
    ]


def take_value(value: tf.Tensor, axes: tuple[Axis | None, ...], where: dict[Axis, tf.Tensor]) -> tf.Tensor:
    """Takes a sub-model's part of one global value; `axes`: the `Axis` of each dimension, or None; see `take`."""
    if not any(axes):
        return value
    # Prefixes are sliced in one operation, all other axes gathered one by one.
    sizes = [where[axis].shape[0] if axis and is_prefix(where[axis]) else -1 for axis in axes]
    value = tf.slice(value, [0] * len(sizes), sizes)
    for dimension, axis in enumerate(axes):
        if axis is not None and sizes[dimension] == -1:
            value = tf.gather(value, tf.maximum(where[axis], 0), axis=dimension)
    return value


def is_prefix(index: tf.Tensor) -> bool:
    """Whether coordinates are known, while tracing, to be 0, 1, 2...: a slice is then enough."""
    static = tf.get_static_value(index)
    return static is not None and all(static == range(len(static)))


def merged_coordinates(cut: Cut, where: dict[Axis, tf.Tensor], present: tf.Tensor) -> dict[Axis, tf.Tensor]:
    """The coordinates that are merged: without padding, absent labels and extra rows (all -1).

    Args:
        where: As `coordinates` gives it.
        present: bool [label axis], which labels of the label axis the client has.
    """

    def merged(axis):
        if not axis.label:
            return where[axis]
        labels = tf.where(present, where[axis][: present.shape[0]], -1)
        return tf.pad(labels, [[0, axis.extra]], constant_values=-1)

    return {axis: merged(axis) for axis in cut.distinct}


def put(cut: Cut, submodel: int, values: list[tf.Tensor], where: dict[Axis, tf.Tensor]) -> list[tf.Tensor | None]:
    """Puts a sub-model's values into zeros of the global shapes; None for variables that the sub-model lacks.

    Rows at -1 are dropped. Args as for `take`, with `merged_coordinates` where only what is merged is wanted.
    """
    positions, remaining = inverses(where), iter(values)
    return [
        put_value(next(remaining), shape, axes, where, positions) if contained[submodel] else None
        for shape, axes, contained in zip(cut.shapes, cut.axes, cut.contained)
    ]


def put_value(
    value: tf.Tensor,
    shape: tuple[int, ...],
    axes: tuple[Axis | None, ...],
    where: dict[Axis, tf.Tensor],
    positions: Callable[[Axis], tf.Tensor],
) -> tf.Tensor:
    """Puts a sub-model's part of one value into zeros of its global shape; see `put`.

    Args:
        value: In the shape of the sub-model.
        shape: The global one.
        axes: The `Axis` of each dimension, or None where nothing is cut.
        where: As for `put`.
        positions: The `inverses` of it.
    """
    for dimension, axis in enumerate(axes):
        if axis is not None and not is_prefix(where[axis]):
            # Gathering by the inverse index is several times faster than scattering, on any axis. Coordinates that
            # the sub-model lacks read the zeros of one more row.
            one_more = [[0, int(other == dimension)] for other in range(len(axes))]
            value = tf.gather(tf.pad(value, one_more), positions(axis), axis=dimension)
    if value.shape == shape:
        return value
    return tf.pad(value, [[0, full - size] for full, size in zip(shape, value.shape)])


def inverses(where: dict[Axis, tf.Tensor]) -> Callable[[Axis], tf.Tensor]:
    """Returns a function that gives the `inverse` of an axis, made once for all values and only where one asks."""
    return functools.cache(lambda axis: inverse(where[axis], axis.size + axis.extra))


def inverse(index: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """For every global coordinate its position in `index`, or the length of `index` where it is not there.

    Args:
        index: int32 [n], coordinates; -1 is no coordinate.
        size: How many coordinates there are.

    Returns:
        int32 [size].
    """
    length = tf.shape(index)[0]
    coordinates = tf.where(index < 0, size, index)[:, None]
    return tf.tensor_scatter_nd_update(tf.fill([size + 1], length), coordinates, tf.range(length))[:size]
