"""The global values as one row [values]: gather the values of sub-models from it, scatter them back into it.

A round carries one tensor instead of one for each variable. In its loops and branches every tensor costs half a dozen
operations, and a deep network has hundreds of variables.
"""

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.gather import cached_positions, gather_value, is_leading_slice, scatter_value


def concat_values(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Flatten tensors of any shapes and concatenate them, [values]."""
    flat = tf.constant([-1])
    return _concatenated([tf.reshape(value, flat) for value in values], 0)


def split_values(row: tf.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
    """Invert `concat_values` for tensors of these shapes."""
    return [tf.reshape(part, shape) for part, shape in zip(_split(row, list(map(math.prod, shapes))), shapes)]


def pack_state(state: dict) -> dict:
    """Return a state, see `round.new_state`, with one row for the global values and one for each server slot."""
    return {
        "weights": concat_values(state["weights"]),
        "slots": list(map(concat_values, state["slots"])),
        "tables": state["tables"],
    }


def unpack_state(state: dict, shapes: Sequence[tuple[int, ...]]) -> dict:
    """Invert `pack_state`; `shapes`: those of the global values."""
    slots = [split_values(slot, shapes) for slot in state["slots"]]
    return {"weights": split_values(state["weights"], shapes), "slots": slots, "tables": state["tables"]}


def flatten_coverage(coverage: Sequence[tf.Tensor], shapes: Sequence[tuple[int, ...]]) -> tf.Tensor:
    """Return the sum of the client weights that cover each entry of the global row, [values].

    Args:
        coverage: For each global value, broadcastable to it; see `merge.coverage`.
        shapes: Of the global values.
    """

    def kind(position):
        """Adjacent variables with one coverage value are broadcast in one operation."""
        is_constant = coverage[position].shape.num_elements() == 1
        return id(coverage[position]) if is_constant else -position

    pieces = []
    for _, positions in itertools.groupby(range(len(shapes)), kind):
        first, *others = positions
        if coverage[first].shape.num_elements() == 1:
            size = sum(math.prod(shapes[position]) for position in (first, *others))
            pieces.append(tf.broadcast_to(tf.reshape(coverage[first], [1]), [size]))
        else:
            pieces.append(tf.reshape(tf.broadcast_to(coverage[first], shapes[first]), [-1]))
    return _concatenated(pieces, 0)


@dataclass(frozen=True)
class Segment:
    """Adjacent global values that a sub-model has completely or lacks; or a single value of which it has a part.

    Attributes:
        positions: Of the global values.
        size: Number of their entries in the global model.
        contained: Whether the sub-model has them.
        axes: For a value of which it has a part, the `Axis` of each dimension or None; else None.
        group: The group of all of its values; adjacent segments may differ in the group only.
    """

    positions: tuple[int, ...]
    size: int
    contained: bool
    axes: tuple[Axis | None, ...] | None
    group: int


def segments(cut: Cut, submodel: int, groups: Sequence[int]) -> list[Segment]:
    """Divide the global row into the segments of a sub-model.

    Args:
        submodel: Position of the sub-model.
        groups: A number for each global value; values of different groups are never in one segment.
    """

    def kind(position):
        contained = cut.contained[position][submodel]
        cut_position = position if contained and any(cut.axes[position]) else None
        return contained, cut_position, groups[position]

    result = []
    for (contained, cut_position, group), adjacent in itertools.groupby(range(len(cut.shapes)), kind):
        positions = tuple(adjacent)
        size = sum(math.prod(cut.shapes[position]) for position in positions)
        axes = None if cut_position is None else cut.axes[cut_position]
        result.append(Segment(positions, size, contained, axes, group))
    return result


def gather_rows(
    cut: Cut,
    submodel: int,
    row: tf.Tensor,
    coordinates: Sequence[dict[Axis, tf.Tensor]],
    client_values: Sequence[dict[int, tf.Tensor]] | None = None,
) -> tf.Tensor:
    """Gather the values of several clients' sub-models from the global row; for each client like `gather.gather`.

    Args:
        submodel: Position of the sub-model.
        row: [values], the global ones.
        coordinates: The result of `gather.select_coordinates` for each client.
        client_values: For each client `{position: value}`, in global shapes: values that replace those of the row.

    Returns:
        [clients, values of the sub-model].
    """
    client_values = client_values or [{}] * len(coordinates)
    parts = segments(cut, submodel, [position in client_values[0] for position in range(len(cut.shapes))])
    # Blocks of columns, and whether they are one row for all clients.
    pieces: list[tuple[bool, tf.Tensor]] = []
    flat = tf.constant([-1])
    for segment, part in zip(parts, _split(row, [segment.size for segment in parts])):
        if not segment.contained:
            continue
        if segment.group:
            gathered = [
                concat_values([gather_value(values[at], cut.axes[at], indices) for at in segment.positions])
                for values, indices in zip(client_values, coordinates)
            ]
            pieces.append((False, tf.stack(gathered)))
        elif segment.axes is None:
            pieces.append((True, part))
        else:
            # The value in its global shape, gathered once if all clients have the same coordinates.
            value = tf.reshape(part, cut.shapes[segment.positions[0]])
            is_same = have_same_coordinates(segment.axes, coordinates)
            gathered = [
                tf.reshape(gather_value(value, segment.axes, indices), flat)
                for indices in (coordinates[:1] if is_same else coordinates)
            ]
            pieces.append((is_same, gathered[0] if is_same else tf.stack(gathered)))
    # [columns] that all clients share are tiled to [clients, columns], adjacent ones in one operation.
    blocks = []
    for is_same, group in itertools.groupby(pieces, lambda piece: piece[0]):
        block = _concatenated([piece for _, piece in group], -1)
        blocks.append(tf.tile(block[None], [len(coordinates), 1]) if is_same else block)
    return _concatenated(blocks, 1)


def scatter_rows(
    cut: Cut,
    submodel: int,
    rows: tf.Tensor,
    coordinates: Sequence[dict[Axis, tf.Tensor]],
    first_merged_stage: Sequence[int],
    stages_done: tf.Tensor | None = None,
) -> tf.Tensor:
    """Scatter several clients' values into zeros of the global row, each as `gather.scatter` does, and sum them.

    Args:
        submodel: Position of the sub-model.
        rows: [clients, values of the sub-model].
        coordinates: For each client, as for `gather.scatter`.
        first_merged_stage: For each global value the number of stages after which a client counts; 0: never.
        stages_done: int32 [clients], completed stages of each client; None if no value counts from a later stage on.

    Returns:
        [global values].
    """
    parts = segments(cut, submodel, first_merged_stage)
    sizes = [
        sum(math.prod(cut.shape_in(submodel, at)) for at in segment.positions) for segment in parts if segment.contained
    ]
    client_rows = tf.unstack(rows, num=len(coordinates))
    # Parts with the same coordinates for all clients are summed before the scatter.
    summed_parts = iter(_split(_chained(client_rows), sizes))
    client_parts = [iter(_split(row, sizes)) for row in client_rows]
    positions, flat, pieces = list(map(cached_positions, coordinates)), tf.constant([-1]), []
    for segment in parts:
        if not segment.contained:
            pieces.append(tf.zeros([segment.size], rows.dtype))
            continue
        # Both iterators advance by one segment, whichever of them is read.
        summed, separate = next(summed_parts), [next(part) for part in client_parts]
        if segment.group == 0:
            pieces.append(tf.zeros([segment.size], rows.dtype))
        elif segment.group == 1 and have_same_coordinates(segment.axes, coordinates):
            pieces.append(_scatter_segment(cut, submodel, segment, flat, summed, coordinates[0], positions[0]))
        else:
            scattered = [
                _scatter_segment(cut, submodel, segment, flat, *each) for each in zip(separate, coordinates, positions)
            ]
            # Clients that have not completed the first merged stage contribute zeros.
            if stages_done is not None and segment.group > 1:
                counts = tf.cast(stages_done >= segment.group, rows.dtype)
                scattered = [value * counts[client] for client, value in enumerate(scattered)]
            pieces.append(_chained(scattered))
    return _concatenated(pieces, 0)


def _scatter_segment(cut, submodel, segment, flat, part, coordinates, positions):
    """Entries of a segment in the global row from a client's part of it; `flat`: the constant [-1]."""
    if segment.axes is None:
        return part
    (at,) = segment.positions
    value = tf.reshape(part, cut.shape_in(submodel, at))
    return tf.reshape(scatter_value(value, cut.shapes[at], segment.axes, coordinates, positions), flat)


def have_same_coordinates(axes: tuple[Axis | None, ...] | None, coordinates: Sequence[dict[Axis, tf.Tensor]]) -> bool:
    """Return whether all clients have the same coordinates of a value, as far as tracing knows; True for one client."""
    if axes is None or len(coordinates) == 1:
        return True
    return all(is_leading_slice(indices[axis]) for indices in coordinates for axis in axes if axis is not None)


def _chained(values):
    """Sum of tensors, added one after the other."""
    return functools.reduce(operator.add, values)


def _split(row, sizes):
    return [row] if len(sizes) == 1 else tf.split(row, sizes)


def _concatenated(pieces, axis):
    return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis)


def crop(part: tf.Tensor, wide: tuple[int, ...], narrow: tuple[int, ...]) -> tf.Tensor:
    """Return the first coordinates of a variable: [K, values] of shape `wide` to [K, values] of shape `narrow`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    if len(wide) == 1:
        return tf.slice(part, [0, 0], [-1, *narrow])
    value = tf.reshape(part, [-1, *wide])
    return tf.reshape(tf.slice(value, [0] * value.shape.rank, [-1, *narrow]), [part.shape[0], math.prod(narrow)])


def pad_to(part: tf.Tensor, narrow: tuple[int, ...], wide: tuple[int, ...]) -> tf.Tensor:
    """Pad the result of `crop`, [K, values] of shape `narrow`, with zeros at all other coordinates of `wide`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    paddings = [[0, 0], *([0, full - first] for first, full in zip(narrow, wide))]
    if len(wide) == 1:
        return tf.pad(part, paddings)
    return tf.reshape(tf.pad(tf.reshape(part, [-1, *narrow]), paddings), [part.shape[0], math.prod(wide)])
