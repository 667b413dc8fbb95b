"""The global values as one row [values]: what sub-models take out of it and put back.

A round carries one tensor in place of one for each variable: in its loops and branches every tensor costs half a dozen
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
from hetero_tf.rounds.gather import cached_positions, is_leading_slice, put_value, take_value


def joined(values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns tensors of any shapes one behind the other, [values]."""
    flat = tf.constant([-1])
    return _concatenated([tf.reshape(value, flat) for value in values], 0)


def split_values(row: tf.Tensor, shapes: Sequence[tuple[int, ...]]) -> list[tf.Tensor]:
    """Returns the tensors that `joined` has joined, of the given shapes."""
    return [tf.reshape(part, shape) for part, shape in zip(_split(row, list(map(math.prod, shapes))), shapes)]


def in_rows(state: dict) -> dict:
    """Returns a state, see `round.new_state`, with a row for the global values and one for each slot of the server."""
    return {"weights": joined(state["weights"]), "slots": list(map(joined, state["slots"])), "tables": state["tables"]}


def unpack_state(state: dict, shapes: Sequence[tuple[int, ...]]) -> dict:
    """Returns the state that `in_rows` has turned into rows; `shapes`: those of the global values."""
    slots = [split_values(slot, shapes) for slot in state["slots"]]
    return {"weights": split_values(state["weights"], shapes), "slots": slots, "tables": state["tables"]}


def coverage_row(coverage: Sequence[tf.Tensor], shapes: Sequence[tuple[int, ...]]) -> tf.Tensor:
    """Returns for each entry of the global row the sum of the client weights that cover it, [values].

    Args:
        coverage: For each global value, broadcastable to it; see `coverage.coverage`.
        shapes: Of the global values.
    """

    def kind(position):
        """Neighbours with one number for all of their entries are spread out together."""
        alike = coverage[position].shape.num_elements() == 1
        return id(coverage[position]) if alike else -position

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
class Run:
    """Neighbouring global values that a sub-model has whole or lacks; or one alone, of which it has a part.

    Attributes:
        positions: Of the global values.
        size: How many entries they have in the global model.
        contained: Whether the sub-model has them.
        axes: Where it has a part, the `Axis` of each dimension or None; else None.
        mark: What sets them apart from their neighbours besides.
    """

    positions: tuple[int, ...]
    size: int
    contained: bool
    axes: tuple[Axis | None, ...] | None
    mark: int


def runs(cut: Cut, submodel: int, marks: Sequence[int]) -> list[Run]:
    """Divides the global row into the runs of a sub-model.

    Args:
        submodel: Position of the sub-model.
        marks: For each global value; values of unlike marks are never in one run.
    """

    def kind(position):
        contained = cut.contained[position][submodel]
        alone = position if contained and any(cut.axes[position]) else None
        return contained, alone, marks[position]

    found = []
    for (contained, alone, mark), group in itertools.groupby(range(len(cut.shapes)), kind):
        positions = tuple(group)
        size = sum(math.prod(cut.shapes[position]) for position in positions)
        found.append(Run(positions, size, contained, None if alone is None else cut.axes[alone], mark))
    return found


def take_rows(
    cut: Cut,
    submodel: int,
    row: tf.Tensor,
    where: Sequence[dict[Axis, tf.Tensor]],
    own: Sequence[dict[int, tf.Tensor]] | None = None,
) -> tf.Tensor:
    """Takes the values of several clients' sub-models out of the global row; for each client like `cut.take`.

    Args:
        submodel: Position of the sub-model.
        row: [values], the global ones.
        where: For each client what `cut.coordinates` gives.
        own: For each client `{position: value}`, in global shapes: what stands in the place of values of the row.

    Returns:
        [clients, values of the sub-model].
    """
    own = own or [{}] * len(where)
    found = runs(cut, submodel, [position in own[0] for position in range(len(cut.shapes))])
    # Blocks of columns, and whether they are one row for all clients.
    pieces: list[tuple[bool, tf.Tensor]] = []
    flat = tf.constant([-1])
    for run, part in zip(found, _split(row, [run.size for run in found])):
        if not run.contained:
            continue
        if run.mark:
            taken = [
                joined([take_value(values[at], cut.axes[at], place) for at in run.positions])
                for values, place in zip(own, where)
            ]
            pieces.append((False, tf.stack(taken)))
        elif run.axes is None:
            pieces.append((True, part))
        else:
            whole, same = tf.reshape(part, cut.shapes[run.positions[0]]), same_for_all(run.axes, where)
            taken = [tf.reshape(take_value(whole, run.axes, place), flat) for place in (where[:1] if same else where)]
            pieces.append((same, taken[0] if same else tf.stack(taken)))
    blocks = []
    for same, group in itertools.groupby(pieces, lambda piece: piece[0]):
        block = _concatenated([piece for _, piece in group], -1)
        blocks.append(tf.tile(block[None], [len(where), 1]) if same else block)
    return _concatenated(blocks, 1)


def put_rows(
    cut: Cut,
    submodel: int,
    rows: tf.Tensor,
    where: Sequence[dict[Axis, tf.Tensor]],
    counts_from: Sequence[int],
    stages_done: tf.Tensor | None = None,
) -> tf.Tensor:
    """Puts several clients' values into zeros of the global row, each as `cut.put` does, and sums them up.

    Args:
        submodel: Position of the sub-model.
        rows: [clients, values of the sub-model].
        where: For each client, as for `cut.put`.
        counts_from: For each global value after how many stages a client counts; 0: never.
        stages_done: int32 [clients], how many stages each has come to; None where nothing counts from a later one on.

    Returns:
        [global values].
    """
    found = runs(cut, submodel, counts_from)
    sizes = [sum(math.prod(cut.shape_in(submodel, at)) for at in run.positions) for run in found if run.contained]
    of_clients = tf.unstack(rows, num=len(where))
    # What lies at one place for all clients is summed up before it is put there.
    together = iter(_split(_chained(of_clients), sizes))
    alone = [iter(_split(row, sizes)) for row in of_clients]
    positions, flat, pieces = list(map(cached_positions, where)), tf.constant([-1]), []
    for run in found:
        if not run.contained:
            pieces.append(tf.zeros([run.size], rows.dtype))
            continue
        summed, parts = next(together), [next(part) for part in alone]
        if run.mark == 0:
            pieces.append(tf.zeros([run.size], rows.dtype))
        elif run.mark == 1 and same_for_all(run.axes, where):
            pieces.append(_put(cut, submodel, run, flat, summed, where[0], positions[0]))
        else:
            placed = [_put(cut, submodel, run, flat, *each) for each in zip(parts, where, positions)]
            if stages_done is not None and run.mark > 1:
                counts = tf.cast(stages_done >= run.mark, rows.dtype)
                placed = [value * counts[client] for client, value in enumerate(placed)]
            pieces.append(_chained(placed))
    return _concatenated(pieces, 0)


def _put(cut, submodel, run, flat, part, where, positions):
    """The entries of a run in the global row, of what a client has of it; `flat`: the constant [-1]."""
    if run.axes is None:
        return part
    (at,) = run.positions
    value = tf.reshape(part, cut.shape_in(submodel, at))
    return tf.reshape(put_value(value, cut.shapes[at], run.axes, where, positions), flat)


def same_for_all(axes: tuple[Axis | None, ...] | None, where: Sequence[dict[Axis, tf.Tensor]]) -> bool:
    """Whether clients have the same coordinates of a value, as far as it is known while tracing; one client always."""
    if axes is None or len(where) == 1:
        return True
    return all(is_leading_slice(place[axis]) for place in where for axis in axes if axis is not None)


def _chained(values):
    """The sum of tensors, one after the other."""
    return functools.reduce(operator.add, values)


def _split(row, sizes):
    return [row] if len(sizes) == 1 else tf.split(row, sizes)


def _concatenated(pieces, axis):
    return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis)


def narrowed(part: tf.Tensor, wide: tuple[int, ...], narrow: tuple[int, ...]) -> tf.Tensor:
    """Returns the first coordinates of a variable: [K, values] of shape `wide` to [K, values] of shape `narrow`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    if len(wide) == 1:
        return tf.slice(part, [0, 0], [-1, *narrow])
    whole = tf.reshape(part, [-1, *wide])
    return tf.reshape(tf.slice(whole, [0] * whole.shape.rank, [-1, *narrow]), [part.shape[0], math.prod(narrow)])


def pad_to(part: tf.Tensor, narrow: tuple[int, ...], wide: tuple[int, ...]) -> tf.Tensor:
    """Returns what `narrowed` gives, [K, values] of shape `narrow`, with zeros at all other coordinates of `wide`."""
    if math.prod(wide) == math.prod(narrow):
        return part
    behind = [[0, 0], *([0, whole - first] for first, whole in zip(narrow, wide))]
    if len(wide) == 1:
        return tf.pad(part, behind)
    return tf.reshape(tf.pad(tf.reshape(part, [-1, *narrow]), behind), [part.shape[0], math.prod(wide)])
