"""Cuts sub-models out of the global variables by their shapes, and puts them back.

A variable of a sub-model is the global variable with some axes shortened; comparing two shapes says which. No
variable and no architecture is ever named here.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut


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
    sizes = [where[axis].shape[0] if axis and is_leading_slice(where[axis]) else -1 for axis in axes]
    value = tf.slice(value, [0] * len(sizes), sizes)
    for dimension, axis in enumerate(axes):
        if axis is not None and sizes[dimension] == -1:
            value = tf.gather(value, tf.maximum(where[axis], 0), axis=dimension)
    return value


def is_leading_slice(index: tf.Tensor) -> bool:
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
    positions, remaining = cached_positions(where), iter(values)
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
        positions: The `cached_positions` of it.
    """
    for dimension, axis in enumerate(axes):
        if axis is not None and not is_leading_slice(where[axis]):
            # Gathering by the inverse index is several times faster than scattering, on any axis. Coordinates that
            # the sub-model lacks read the zeros of one more row.
            one_more = [[0, int(other == dimension)] for other in range(len(axes))]
            value = tf.gather(tf.pad(value, one_more), positions(axis), axis=dimension)
    if value.shape == shape:
        return value
    return tf.pad(value, [[0, full - size] for full, size in zip(shape, value.shape)])


def cached_positions(where: dict[Axis, tf.Tensor]) -> Callable[[Axis], tf.Tensor]:
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
