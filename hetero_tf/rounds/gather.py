"""Gathers sub-models from the global variables by their shapes, and scatters them back.

A variable of a sub-model is the global variable with some axes shortened. The shapes alone define the cut: the code
names no variable and no architecture.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut


def select_coordinates(
    cut: Cut,
    submodel: int,
    choose: Callable,
    round: tf.Tensor,
    client: tf.Tensor,
    seed: tf.Tensor,
    labels: tf.Tensor,
    member: tf.Tensor,
) -> dict[Axis, tf.Tensor]:
    """Select the global coordinates of one client's sub-model.

    Args:
        submodel: Position of the sub-model.
        choose: Function of a plug-in of `methods.submodels`.
        round, client, seed: Scalar int32.
        labels: int32 [label axis], the client's labels, -1 = padding.
        member: Scalar int32, index of the network of an ensemble that is trained.

    Returns:
        `{Axis: int32 [size in the sub-model + extra]}`; -1 marks rows without a global entry.
    """
    coordinates = {}
    for axis in cut.distinct:
        if axis.label:
            coordinates[axis] = tf.concat([labels, tf.range(axis.size, axis.size + axis.extra)], 0)
        elif axis.member:
            coordinates[axis] = tf.reshape(member, [1])
        else:
            coordinates[axis] = choose(axis.size, axis.sizes[submodel], round, client, seed)
    return coordinates


def gather(cut: Cut, submodel: int, weights: list[tf.Tensor], coordinates: dict[Axis, tf.Tensor]) -> list[tf.Tensor]:
    """Gather a sub-model's values; padding rows repeat row 0, which is neither read nor merged.

    Args:
        submodel: Position of the sub-model.
        weights: Global values in the order of `cut.shapes`.
        coordinates: The result of `select_coordinates`.

    Returns:
        The values that the sub-model contains, each in its shape in the sub-model.
    """
    return [
        gather_value(value, axes, coordinates)
        for value, axes, contained in zip(weights, cut.axes, cut.contained)
        if contained[submodel]
    ]


def gather_value(value: tf.Tensor, axes: tuple[Axis | None, ...], coordinates: dict[Axis, tf.Tensor]) -> tf.Tensor:
    """Gather a sub-model's part of one global value; `axes`: the `Axis` of each dimension, or None; see `gather`."""
    if not any(axes):
        return value
    # Leading slices of all axes take one operation; every other axis needs a separate gather.
    sizes = [coordinates[axis].shape[0] if axis and is_leading_slice(coordinates[axis]) else -1 for axis in axes]
    value = tf.slice(value, [0] * len(sizes), sizes)
    for dimension, axis in enumerate(axes):
        if axis is not None and sizes[dimension] == -1:
            value = tf.gather(value, tf.maximum(coordinates[axis], 0), axis=dimension)
    return value


def is_leading_slice(index: tf.Tensor) -> bool:
    """Return whether coordinates are known, while tracing, to be 0, 1, 2...: then a slice is enough."""
    static = tf.get_static_value(index)
    return static is not None and all(static == range(len(static)))


def select_merged(cut: Cut, coordinates: dict[Axis, tf.Tensor], present: tf.Tensor) -> dict[Axis, tf.Tensor]:
    """Select the coordinates that are merged: padding, absent labels and extra rows become -1.

    Args:
        coordinates: The result of `select_coordinates`.
        present: bool [label axis], which labels of the label axis the client has.
    """

    def merged(axis):
        if not axis.label:
            return coordinates[axis]
        labels = tf.where(present, coordinates[axis][: present.shape[0]], -1)
        return tf.pad(labels, [[0, axis.extra]], constant_values=-1)

    return {axis: merged(axis) for axis in cut.distinct}


def scatter(
    cut: Cut, submodel: int, values: list[tf.Tensor], coordinates: dict[Axis, tf.Tensor]
) -> list[tf.Tensor | None]:
    """Scatter a sub-model's values into zeros of the global shapes; None for variables that the sub-model lacks.

    Rows at -1 are dropped. Args as for `gather`; pass the result of `select_merged` to keep merged entries only.
    """
    positions, remaining = cached_positions(coordinates), iter(values)
    return [
        scatter_value(next(remaining), shape, axes, coordinates, positions) if contained[submodel] else None
        for shape, axes, contained in zip(cut.shapes, cut.axes, cut.contained)
    ]


def scatter_value(
    value: tf.Tensor,
    shape: tuple[int, ...],
    axes: tuple[Axis | None, ...],
    coordinates: dict[Axis, tf.Tensor],
    positions: Callable[[Axis], tf.Tensor],
) -> tf.Tensor:
    """Scatter a sub-model's part of one value into zeros of its global shape; see `scatter`.

    Args:
        value: In the shape of the sub-model.
        shape: The global one.
        axes: The `Axis` of each dimension, or None for an axis that is not cut.
        coordinates: As for `scatter`.
        positions: The `cached_positions` of the coordinates.
    """
    for dimension, axis in enumerate(axes):
        if axis is not None and not is_leading_slice(coordinates[axis]):
            # Gathering by the inverse index is several times faster than scattering, on any axis. Coordinates that
            # the sub-model lacks read the zeros of one more row.
            one_more = [[0, int(other == dimension)] for other in range(len(axes))]
            value = tf.gather(tf.pad(value, one_more), positions(axis), axis=dimension)
    if value.shape == shape:
        return value
    return tf.pad(value, [[0, full - size] for full, size in zip(shape, value.shape)])


def cached_positions(coordinates: dict[Axis, tf.Tensor]) -> Callable[[Axis], tf.Tensor]:
    """Return a function that computes the `positions_in` of an axis once, on its first call."""
    return functools.cache(lambda axis: positions_in(coordinates[axis], axis.size + axis.extra))


def positions_in(index: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """Return the position of every global coordinate in `index`, or the length of `index` if it is missing there.

    Args:
        index: int32 [n], coordinates; -1 is ignored.
        size: Number of global coordinates.

    Returns:
        int32 [size].
    """
    length = tf.shape(index)[0]
    # Negative coordinates are written to one more entry, which is cut off.
    targets = tf.where(index < 0, size, index)[:, None]
    return tf.tensor_scatter_nd_update(tf.fill([size + 1], length), targets, tf.range(length))[:size]
