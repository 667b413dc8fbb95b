"""Cuts sub-models out of the global variables by their shapes, and puts them back.

A variable of a level is the global variable with some axes shortened; comparing two shapes says which. No
variable and no architecture is ever named here.
"""

from dataclasses import dataclass

import tensorflow as tf


@dataclass(frozen=True)
class Axis:
    """One cut dimension. Dimensions with equal `Axis` share their coordinates.

    Attributes:
        size: In the global model, without `extra`.
        kept: Of each level, without `extra`.
        label: Whether this is the label axis, whose coordinates are the client's labels.
        extra: Rows behind the labels (the mask token) that every client gets and nobody merges.
    """

    size: int
    kept: tuple[int, ...]
    label: bool = False
    extra: int = 0


@dataclass(frozen=True)
class Cut:
    """Where sub-models of all levels lie in the global model.

    Attributes:
        shapes: Global shape of every trainable variable, in model order.
        axes: Per variable and dimension an `Axis`, or None where nothing is cut.
    """

    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[Axis | None, ...], ...]

    @property
    def distinct(self):
        """Every `Axis` once."""
        return tuple(dict.fromkeys(axis for axes in self.axes for axis in axes if axis is not None))


def build_cut(global_model, level_models, label_axes, classes):
    """Derives the cut from shapes.

    Args:
        global_model: Keras model at the global width with all `classes`.
        level_models: One per level, narrower and perhaps with a shorter label axis.
        label_axes: `{path: {dimension: extra}}` as `find_label_axes` gives it.
        classes: Length of the global label axis.

    Raises:
        ValueError: A level lacks a variable or is larger than the global model.
    """
    levels = [{v.path: tuple(v.shape) for v in model.trainable_variables} for model in level_models]
    shapes, axes = [], []
    for variable in global_model.trainable_variables:
        path, shape = variable.path, tuple(variable.shape)
        found = [level.get(path) for level in levels]
        for other in found:
            if other is None or len(other) != len(shape) or any(o > s for o, s in zip(other, shape)):
                raise ValueError(f"variable {path} of a level does not lie inside the global one, which has shape "
                                 f"{shape}. Received: shape={other}")
        kept = list(zip(*found))
        shapes.append(shape)
        axes.append(tuple(
            _axis(size, kept[place], label_axes.get(path, {}).get(place), classes)
            for place, size in enumerate(shape)))
    return Cut(tuple(shapes), tuple(axes))


def _axis(size, kept, extra, classes):
    """The `Axis` of one dimension, None if every level keeps all of it and it has no labels."""
    if extra is not None:
        return Axis(classes, tuple(value - extra for value in kept), label=True, extra=extra)
    return None if all(value == size for value in kept) else Axis(size, tuple(kept))


def find_label_axes(build):
    """Finds the dimensions that grow with the number of classes, by building twice.

    Args:
        build: `classes -> keras.Model`; call it at the smallest width, it is only looked at.

    Returns:
        `{path: {dimension: extra}}`, extra = rows beyond the classes.
    """
    small, large = ({v.path: tuple(v.shape) for v in build(classes).trainable_variables} for classes in (2, 3))
    found = {}
    for path, shape in small.items():
        places = {place: size - 2 for place, size in enumerate(shape) if size != large[path][place]}
        if places:
            found[path] = places
    return found


def coordinates(cut, level, keep, round, client, seed, labels):
    """Which global coordinates one client's sub-model has.

    Args:
        level: Position of the level (a Python int).
        keep: Sub-model plug-in.
        round, client, seed: Scalar int32 tensors.
        labels: int32 [kept labels], the client's labels, -1 = padding.

    Returns:
        `{Axis: int32 [kept + extra]}`; -1 marks rows that hold no global entry.
    """
    found = {}
    for axis in cut.distinct:
        if axis.label:
            found[axis] = tf.concat([labels, tf.range(axis.size, axis.size + axis.extra)], 0)
        else:
            found[axis] = keep(axis.size, axis.kept[level], round, client, seed)
    return found


def take(cut, weights, where):
    """The sub-model's values; padding rows repeat row 0 (nothing reads them and nobody merges them).

    Args:
        weights: Global tensors in the order of `cut.shapes`.
        where: As `coordinates` gives it.
    """
    return [_take(value, axes, where) for value, axes in zip(weights, cut.axes)]


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
        kept = tf.where(present, where[axis][:present.shape[0]], -1)
        return tf.pad(kept, [[0, axis.extra]], constant_values=-1)

    return {axis: rows(axis) for axis in cut.distinct}


def put(cut, values, rows):
    """The sub-model's values at their places in zeros of the global shapes; rows at -1 are dropped."""
    places = {axis: inverse(index, axis.size + axis.extra) for axis, index in rows.items()}
    return [_put(value, shape, axes, rows, places) for value, shape, axes in zip(values, cut.shapes, cut.axes)]


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
        client_weights: [clients].
    """
    letters = "abcdefgh"
    found = []
    for axes in cut.axes:
        names = [letter for letter, axis in zip(letters, axes) if axis is not None]
        operands = [masks[axis] for axis in axes if axis is not None]
        equation = ",".join(["z", *("z" + name for name in names)]) + "->" + "".join(names)
        summed = tf.einsum(equation, client_weights, *operands)
        shape = [1 if axis is None else axis.size + axis.extra for axis in axes]
        found.append(tf.reshape(summed, shape))
    return found
