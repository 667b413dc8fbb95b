"""The cut of one sub-model: gathers its values from the global row, and scatters trained values back into it.

A round carries all global values as one tensor, the global row [values]. In its loops and branches every tensor costs
half a dozen operations, and a deep network has hundreds of variables. A sub-model has a shorter row of the same order.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut, Parts

# Global coordinates of each axis of one client's sub-model: int32 [size in the sub-model + extra]; -1: no global entry.
Coordinates = dict[Axis, tf.Tensor]

# Entries of the largest constant of an axis in a graph.
MAX_CONSTANT = 1024


@dataclass(frozen=True)
class Segment:
    """Adjacent global values that a sub-model has completely or lacks; or a single value of which it has a part.

    Attributes:
        size: Number of columns in the global row.
        part_size: Number of columns in the sub-model's row; 0 if it lacks the values.
        shape: Global shape of a value of which it has a part; else empty.
        part_shape: Shape of the value in the sub-model; else empty.
        axes: The `Axis` of each dimension of this value, None for one that is not cut; empty without a part.
        first_merged_stage: Number of completed stages from which on a client counts in the merge; 0: never.
    """

    size: int
    part_size: int
    shape: tuple[int, ...]
    part_shape: tuple[int, ...]
    axes: tuple[Axis | None, ...]
    first_merged_stage: int

    def gather(self, columns: tf.Tensor, coordinates: Coordinates) -> tf.Tensor:
        """Gather the columns [part_size] of one client from the global ones, [size]; padding repeats entry 0."""
        if self._is_whole(coordinates):
            return columns
        # Leading slices of all axes take one operation; every other axis needs a separate gather.
        sizes = [
            coordinates[axis].shape[0] if axis and is_leading_slice(coordinates[axis]) else -1 for axis in self.axes
        ]
        value = tf.slice(tf.reshape(columns, self.shape), [0] * len(sizes), sizes)
        for dimension, axis in enumerate(self.axes):
            if axis is not None and sizes[dimension] == -1:
                value = tf.gather(value, tf.maximum(coordinates[axis], 0), axis=dimension)
        return tf.reshape(value, [-1])

    def scatter(
        self, columns: tf.Tensor, coordinates: Coordinates, positions: Callable[[Axis], tf.Tensor]
    ) -> tf.Tensor:
        """Scatter the columns [part_size] of one client into zeros, [size]; entries at -1 are dropped.

        Args:
            positions: The `cached_positions` of the coordinates.
        """
        if self._is_whole(coordinates):
            return columns
        value = tf.reshape(columns, self.part_shape)
        for dimension, axis in enumerate(self.axes):
            if axis is not None and not is_leading_slice(coordinates[axis]):
                # Gathering by the inverse index is several times faster than scattering, on any axis. Coordinates that
                # the sub-model lacks read the zeros of one more row.
                one_more = [[0, int(other == dimension)] for other in range(len(self.axes))]
                value = tf.gather(tf.pad(value, one_more), positions(axis), axis=dimension)
        if value.shape != self.shape:
            value = tf.pad(value, [[0, full - size] for full, size in zip(self.shape, value.shape)])
        return tf.reshape(value, [-1])

    def _is_whole(self, coordinates):
        """Return True if a client is known, while tracing, to have all columns in their order."""
        return self.part_shape == self.shape and all(
            axis is None or is_leading_slice(coordinates[axis]) for axis in self.axes
        )


@dataclass(frozen=True)
class SubmodelCut:
    """The cut of one sub-model.

    Attributes:
        segments: Partition of the global row, in its order.
        sizes: `{Axis: size in the sub-model}` of every cut axis, without `Axis.extra`.
        parts: `{Axis: its parts in the sub-model}` of those that have several.
    """

    segments: tuple[Segment, ...]
    sizes: dict[Axis, int]
    parts: dict[Axis, Parts]

    @classmethod
    def of(cls, cut: Cut, submodel: int, first_merged_stage: Sequence[int]) -> "SubmodelCut":
        """Build the cut of a sub-model.

        Args:
            submodel: Its position in the cut.
            first_merged_stage: For each global value the number of stages after which a client counts; 0: never.
        """

        def kind(position):
            contained = cut.contained[position][submodel]
            # A value with a cut axis is a separate segment.
            cut_position = position if contained and any(cut.axes[position]) else None
            return contained, cut_position, first_merged_stage[position]

        segments = []
        for (contained, cut_position, first_stage), adjacent in itertools.groupby(range(len(cut.shapes)), kind):
            size = sum(math.prod(cut.shapes[position]) for position in adjacent)
            if cut_position is None:
                segments.append(Segment(size, size if contained else 0, (), (), (), first_stage))
            else:
                part_shape = cut.shape_in(submodel, cut_position)
                shape, axes = cut.shapes[cut_position], cut.axes[cut_position]
                segments.append(Segment(size, math.prod(part_shape), shape, part_shape, axes, first_stage))
        sizes = {axis: axis.sizes[submodel] for axis in cut.distinct}
        return cls(tuple(segments), sizes, {axis: axis.parts[submodel] for axis in cut.distinct if axis.parts})

    def coordinates(
        self,
        choose: Callable,
        round: tf.Tensor,
        client: tf.Tensor,
        seed: tf.Tensor,
        labels: tf.Tensor,
        member: tf.Tensor,
    ) -> Coordinates:
        """Select the global coordinates of one client's sub-model.

        Args:
            choose: Function of a plug-in of `methods.submodels`.
            round, client, seed: Scalar int32.
            labels: int32 [label axis], the client's labels, -1 = padding.
            member: Scalar int32, index of the network of an ensemble that is trained.
        """
        coordinates = {}
        for axis, size in self.sizes.items():
            if axis.label:
                coordinates[axis] = tf.concat([labels, tf.range(axis.size, axis.size + axis.extra)], 0)
            elif axis.member:
                coordinates[axis] = tf.reshape(member, [1])
            else:
                parts = self.parts.get(axis, ((axis.size, size),))
                coordinates[axis] = _choose_parts(parts, lambda full, few: choose(full, few, round, client, seed))
        return coordinates

    def gather(self, rows: tf.Tensor, coordinates: Sequence[Coordinates]) -> tf.Tensor:
        """Gather the rows of several clients' sub-models.

        Args:
            rows: The global row [values] for all clients, or one for each, [clients, values].

        Returns:
            [clients, values of the sub-model].
        """
        clients, is_common = len(coordinates), rows.shape.rank == 1
        # Blocks of columns, and whether they are [columns] for all clients or [clients, columns].
        pieces: list[tuple[bool, tf.Tensor]] = []
        for segment, columns in zip(self.segments, _split(rows, [segment.size for segment in self.segments])):
            if not segment.part_size:
                continue
            if not segment.axes:
                pieces.append((is_common, columns))
            elif is_common and have_same_coordinates(segment, coordinates):
                pieces.append((True, segment.gather(columns, coordinates[0])))
            else:
                separate = [columns] * clients if is_common else tf.unstack(columns, num=clients)
                pieces.append((False, tf.stack(list(map(segment.gather, separate, coordinates)))))
        # Common columns are tiled to [clients, columns], adjacent ones in one operation.
        blocks = []
        for is_common, group in itertools.groupby(pieces, lambda piece: piece[0]):
            block = concat_columns([columns for _, columns in group])
            blocks.append(tf.tile(block[None], [clients, 1]) if is_common else block)
        return concat_columns(blocks)

    def scatter_sum(
        self, rows: tf.Tensor, coordinates: Sequence[Coordinates], completed_stages: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Scatter several clients' rows into zeros of the global row and sum those that count in the merge.

        Args:
            rows: [clients, values of the sub-model].
            coordinates: Those of each client; entries at -1 are dropped.
            completed_stages: int32 [clients]; None if no value counts only from a later stage on.

        Returns:
            [values].
        """
        sizes = [segment.part_size for segment in self.segments if segment.part_size]
        client_rows = tf.unstack(rows, num=len(coordinates))
        # Columns with the same coordinates for all clients are summed before the scatter.
        summed_columns = iter(_split(_sum_in_order(client_rows), sizes))
        client_columns = zip(*(_split(row, sizes) for row in client_rows))
        positions, pieces = list(map(cached_positions, coordinates)), []
        for segment in self.segments:
            # Both iterators advance by one segment, whichever of them is read.
            summed, separate = (next(summed_columns), next(client_columns)) if segment.part_size else (None, ())
            if not segment.part_size or segment.first_merged_stage == 0:
                pieces.append(tf.zeros([segment.size], rows.dtype))
            elif segment.first_merged_stage == 1 and have_same_coordinates(segment, coordinates):
                pieces.append(segment.scatter(summed, coordinates[0], positions[0]))
            else:
                scattered = list(map(segment.scatter, separate, coordinates, positions))
                # Clients that have not completed the first merged stage contribute zeros.
                if completed_stages is not None and segment.first_merged_stage > 1:
                    counts = tf.cast(completed_stages >= segment.first_merged_stage, rows.dtype)
                    scattered = [columns * counts[client] for client, columns in enumerate(scattered)]
                pieces.append(_sum_in_order(scattered))
        return concat_columns(pieces)

    def scatter(
        self, rows: tf.Tensor, coordinates: Sequence[Coordinates], completed_stages: tf.Tensor | None
    ) -> tf.Tensor:
        """Scatter each client's row into zeros of the global row, [clients, values]; arguments as for `scatter_sum`."""
        count = len(coordinates)
        stages = [None] * count if completed_stages is None else tf.split(completed_stages, count)
        clients = zip(tf.split(rows, count), coordinates, stages)
        return tf.stack([self.scatter_sum(row, [each], stage) for row, each, stage in clients])

    def merged_columns(self, merged: Sequence[Coordinates], completed_stages: tf.Tensor | None) -> tf.Tensor:
        """Return which values of rows are merged, bool [clients or 1, values]; arguments as for `scatter_sum`."""

        def columns(segment, client):
            first = segment.first_merged_stage
            counts = completed_stages[client] >= first if completed_stages is not None and first > 1 else first > 0
            inside = tf.fill(segment.part_shape or [segment.part_size], counts)
            for dimension, axis in enumerate(segment.axes):
                if axis is not None:
                    shape = [-1 if other == dimension else 1 for other in range(len(segment.axes))]
                    inside &= tf.reshape(merged[client][axis] >= 0, shape)
            return tf.reshape(inside, [-1])

        same = completed_stages is None and all(have_same_coordinates(segment, merged) for segment in self.segments)
        clients = range(1 if same else len(merged))
        return tf.stack([concat_columns([columns(segment, client) for segment in self.segments]) for client in clients])

    def overwrite(self, row: tf.Tensor, client_row: tf.Tensor, coordinates: Coordinates) -> tf.Tensor:
        """Return a global row [values] with one client's values at its coordinates; other entries do not change.

        Args:
            row: [values], the old ones.
            client_row: [values of the sub-model].
        """
        client_columns = iter(_split(client_row, [segment.part_size for segment in self.segments if segment.part_size]))
        positions, pieces = cached_positions(coordinates), []
        for segment, old in zip(self.segments, _split(row, [segment.size for segment in self.segments])):
            new = next(client_columns) if segment.part_size else old
            if segment.axes:
                is_inside = segment.scatter(tf.ones_like(new), coordinates, positions) > 0
                new = tf.where(is_inside, segment.scatter(new, coordinates, positions), old)
            pieces.append(new)
        return concat_columns(pieces)


def merged_coordinates(coordinates: Coordinates, present: tf.Tensor) -> Coordinates:
    """Select the coordinates that are merged: padding, absent labels and extra rows become -1.

    Args:
        present: bool [label axis], which labels of the label axis the client has.
    """

    def merged(axis, index):
        if not axis.label:
            return index
        labels = tf.where(present, index[: present.shape[0]], -1)
        return tf.pad(labels, [[0, axis.extra]], constant_values=-1)

    return {axis: merged(axis, index) for axis, index in coordinates.items()}


def _choose_parts(parts, choose):
    """Return the coordinates of an axis by `choose(size, size in the sub-model)` of each part; equal parts share it."""
    chosen, start = [], 0
    for (full, size), equal in itertools.groupby(parts):
        count = len(list(equal))
        first = choose(full, size)
        chosen.append(first if len(parts) == 1 else tf.reshape(start + full * tf.range(count)[:, None] + first, [-1]))
        start += count * full
    return chosen[0] if len(chosen) == 1 else tf.concat(chosen, 0)


def is_leading_slice(index: tf.Tensor) -> bool:
    """Return whether coordinates are known, while tracing, to be 0, 1, 2...: then a slice is enough."""
    static = tf.get_static_value(index)
    return static is not None and np.array_equal(static, range(len(static)))


def have_same_coordinates(segment: Segment, coordinates: Sequence[Coordinates]) -> bool:
    """Return whether all clients have the same coordinates of a segment, as far as tracing knows; True for one."""
    if len(coordinates) == 1:
        return True
    return all(is_leading_slice(indices[axis]) for indices in coordinates for axis in segment.axes if axis is not None)


def cached_positions(coordinates: Coordinates) -> Callable[[Axis], tf.Tensor]:
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
    known = tf.get_static_value(index)
    if known is not None and isinstance(size, int) and size <= MAX_CONSTANT:
        # A constant in place of 20 operations; a sub-model has one for each axis and client.
        positions = np.full(size + 1, len(known), np.int32)
        positions[np.where(known < 0, size, known)] = np.arange(len(known))
        return tf.constant(positions[:size])
    length = tf.shape(index)[0]
    # Negative coordinates are written to one more entry, which is cut off.
    targets = tf.where(index < 0, size, index)[:, None]
    return tf.tensor_scatter_nd_update(tf.fill([size + 1], length), targets, tf.range(length))[:size]


def concat_columns(blocks: Sequence[tf.Tensor]) -> tf.Tensor:
    """Concatenate blocks of columns, [..., columns]."""
    return blocks[0] if len(blocks) == 1 else tf.concat(blocks, -1)


def _split(rows, sizes):
    """Split rows [..., columns] into blocks of columns."""
    return [rows] if len(sizes) == 1 else tf.split(rows, sizes, axis=-1)


def _sum_in_order(rows):
    """Sum tensors, one after the other."""
    return functools.reduce(operator.add, rows)
