"""Cuts sub-models out of the global variables by their shapes, and puts them back.

A variable of a sub-model is the global variable with some axes shortened; comparing two shapes says which. No
variable and no architecture is ever named here.
"""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Axis:
    """One cut dimension. Dimensions with equal `Axis` share their coordinates.

    Attributes:
        size: In the global model, without `extra`.
        kept: Of each sub-model, without `extra`.
        label: Whether this is the label axis, whose coordinates are the client's labels.
        extra: Rows behind the labels (the mask token) that every client gets and nobody merges.
        member: Whether this is the axis of an ensemble's networks, of which a client trains one at a time.
    """

    size: int
    kept: tuple[int, ...]
    label: bool = False
    extra: int = 0
    member: bool = False


@dataclass(frozen=True)
class Cut:
    """Where the sub-models lie in the global model.

    Attributes:
        shapes: Global shape of every trainable variable, in model order.
        axes: Per variable and dimension an `Axis`, or None where nothing is cut.
        held: Per variable and sub-model, whether it is there at all.
    """

    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Axis | None, ...], ...]
    held: tuple[tuple[bool, ...], ...]

    @property
    def distinct(self):
        """Every `Axis` once."""
        return tuple(dict.fromkeys(axis for axes in self.axes for axis in axes if axis is not None))


def cut_of_shapes(shapes, submodels, label_axes, classes, members=False):
    """Derives the cut from shapes.

    Args:
        shapes: `{path: shape}` of every value at the global level with all `classes`.
        submodels: The same of each sub-model: narrower, perhaps with a shorter label axis or fewer variables.
        label_axes: `{path: {dimension: extra}}` as `find_label_axes` gives it.
        classes: Length of the global label axis.
        members: Whether the first dimension of every shape is the axis of an ensemble's networks.

    Raises:
        ValueError: A sub-model has a variable that the global model lacks, or a larger one.
    """
    axes, held = [], []
    for submodel in submodels:
        for path, other in submodel.items():
            shape = shapes.get(path)
            if shape is None or len(other) != len(shape) or any(o > s for o, s in zip(other, shape)):
                raise ValueError(
                    f"variable {path} of a sub-model does not lie inside the global one, which has shape "
                    f"{shape}. Received: shape={other}"
                )
    for path, shape in shapes.items():
        # What a sub-model lacks is cut nowhere: it is not there to be cut.
        kept = list(zip(*(submodel.get(path, shape) for submodel in submodels)))
        held.append(tuple(path in submodel for submodel in submodels))
        axes.append(
            tuple(
                Axis(size, kept[place], member=True)
                if members and place == 0
                else _axis(size, kept[place], label_axes.get(path, {}).get(place), classes)
                for place, size in enumerate(shape)
            )
        )
    return Cut(tuple(shapes.values()), tuple(axes), tuple(held))


def _axis(size, kept, extra, classes):
    """The `Axis` of one dimension, None if every sub-model keeps all of it and it has no labels."""
    if extra is not None:
        return Axis(classes, tuple(value - extra for value in kept), label=True, extra=extra)
    return None if all(value == size for value in kept) else Axis(size, tuple(kept))


def find_label_axes(build):
    """Finds the dimensions that grow with the number of classes, by building twice.

    Args:
        build: `classes -> {path: shape}`; the smallest width will do.

    Returns:
        `{path: {dimension: extra}}`, extra = rows beyond the classes.
    """
    small, large = build(2), build(3)
    found = {}
    for path, shape in small.items():
        places = {place: size - 2 for place, size in enumerate(shape) if size != large[path][place]}
        if places:
            found[path] = places
    return found


def coordinates(cut, submodel, keep, round, client, seed, labels, member):
    """Which global coordinates one client's sub-model has.

    Args:
        submodel: Position of the sub-model (a Python int).
        keep: Sub-model plug-in.
        round, client, seed: Scalar int32 tensors.
        labels: int32 [kept labels], the client's labels, -1 = padding.
        member: Scalar int32, which network of an ensemble is trained.

    Returns:
        `{Axis: int32 [kept + extra]}`; -1 marks rows that hold no global entry.
    """
    found = {}
    for axis in cut.distinct:
        if axis.label:
            found[axis] = tf.concat([labels, tf.range(axis.size, axis.size + axis.extra)], 0)
        elif axis.member:
            found[axis] = tf.reshape(member, [1])
        else:
            found[axis] = keep(axis.size, axis.kept[submodel], round, client, seed)
    return found


def take(cut, submodel, weights, where):
    """The sub-model's values; padding rows repeat row 0 (nothing reads them and nobody merges them).

    Args:
        submodel: Position of the sub-model (a Python int).
        weights: Global tensors in the order of `cut.shapes`.
        where: As `coordinates` gives it.

    Returns:
        List of tensors, of the variables that the sub-model holds.
    """
    return [_take(value, axes, where) for value, axes, held in zip(weights, cut.axes, cut.held) if held[submodel]]


def _take(value, axes, where):
    sizes = [where[axis].shape[0] if axis and _is_prefix(where[axis]) else -1 for axis in axes]
    value = tf.slice(value, [0] * len(sizes), sizes)
    for place, axis in enumerate(axes):
        if axis is not None and sizes[place] == -1:
            value = tf.gather(value, tf.maximum(where[axis], 0), axis=place)
    return value


def _is_prefix(index):
    """Whether coordinates are known, while tracing, to be 0, 1, 2...: a slice is then enough."""
    static = tf.get_static_value(index)
    return static is not None and all(static == range(len(static)))


def merged_rows(cut, where, present):
    """The coordinates that are merged: without padding, absent labels and extra rows (all -1).

    Args:
        where: As `coordinates` gives it.
        present: bool [kept labels], which labels of the label axis the client has.
    """

    def rows(axis):
        if not axis.label:
            return where[axis]
        kept = tf.where(present, where[axis][: present.shape[0]], -1)
        return tf.pad(kept, [[0, axis.extra]], constant_values=-1)

    return {axis: rows(axis) for axis in cut.distinct}


def put(cut, submodel, values, rows):
    """The sub-model's values at their places in the global shapes; None for variables that the sub-model lacks.

    Everywhere else are zeros; rows at -1 are dropped. Args as for `take`, with `merged_rows`.
    """
    places = {axis: inverse(index, axis.size + axis.extra) for axis, index in rows.items()}
    values = iter(values)
    return [
        _put(next(values), shape, axes, rows, places) if held[submodel] else None
        for shape, axes, held in zip(cut.shapes, cut.axes, cut.held)
    ]


def _put(value, shape, axes, rows, places):
    for place, axis in enumerate(axes):
        if axis is not None and not _is_prefix(rows[axis]):
            # Gathering by the inverse index is several times faster than scattering, on any axis.
            one_more = [[0, int(other == place)] for other in range(len(axes))]
            value = tf.gather(tf.pad(value, one_more), places[axis], axis=place)
    return tf.pad(value, [[0, size - have] for size, have in zip(shape, value.shape)])


def inverse(index, size):
    """For every global coordinate its position in `index`, or the length of `index` where it is not there."""
    length = tf.shape(index)[0]
    places = tf.where(index < 0, size, index)[:, None]
    return tf.tensor_scatter_nd_update(tf.fill([size + 1], length), places, tf.range(length))[:size]


def axis_masks(cut, rows, dtype):
    """`{Axis: [size + extra]}`, 1 where a client covers the coordinate and 0 elsewhere."""

    def mask(axis):
        index, size = rows[axis], axis.size + axis.extra
        covered = inverse(index, size) < tf.shape(index)[0]
        return tf.cast(covered, dtype)

    return {axis: mask(axis) for axis in cut.distinct}


def coverage(cut, masks, client_weights):
    """The sum of client weights that cover each entry, per variable, broadcastable to its global shape.

    An entry is covered where all its axes are, so the sum over clients is a contraction of small masks instead of
    a sum of full-size ones.

    Args:
        masks: `{Axis: [clients, size + extra]}`, stacked `axis_masks`.
        client_weights: For each variable [clients], 0 for clients that do not count for it.
    """
    letters = "abcdefgh"
    found = []
    for axes, counting in zip(cut.axes, client_weights):
        names = [letter for letter, axis in zip(letters, axes) if axis is not None]
        operands = [masks[axis] for axis in axes if axis is not None]
        equation = ",".join(["z", *("z" + name for name in names)]) + "->" + "".join(names)
        summed = tf.einsum(equation, counting, *operands)
        shape = [1 if axis is None else axis.size + axis.extra for axis in axes]
        found.append(tf.reshape(summed, shape))
    return found
