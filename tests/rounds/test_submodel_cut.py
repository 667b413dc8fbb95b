"""Sub-models gathered from the global row and scattered back, compared with NumPy indices on random axes."""

import math

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.merge import axis_mask, coverage
from hetero_tf.rounds.submodel_cut import SubmodelCut, have_same_coordinates, merged_coordinates, positions_in

LABELS = 7
# A cut with segments of every kind: parts of values, adjacent complete values, a value that sub-model 1 lacks.
WIDE, DEEP = Axis(5, (3, 2)), Axis(4, (4, 1))
SHAPES = ((5, 2), (3,), (2, 2), (4, 5), (6,), (2,), (5,))
AXES = ((WIDE, None), (None,), (None, None), (DEEP, WIDE), (None,), (None,), (WIDE,))
CONTAINED = tuple((True, position != 4) for position in range(7))
CUT = Cut(SHAPES, AXES, CONTAINED)
# A value counts always, never, or from the second or third stage on.
FIRST_STAGES = (1, 0, 2, 3, 1, 1, 2)


def label_case(rng):
    """A cut with label axes, and one client's coordinates and present labels."""
    num_labels = int(rng.integers(2, LABELS + 1))
    label, plain = (Axis(LABELS, (num_labels,), label=True, extra=extra) for extra in (1, 0))
    axes = ((None, Axis(6, (4,))), (Axis(6, (4,)), plain), (label, Axis(6, (4,))))
    shapes = tuple(tuple(3 if axis is None else axis.size + axis.extra for axis in row) for row in axes)
    num_real = int(rng.integers(1, num_labels + 1))
    labels = np.full(num_labels, -1)
    labels[:num_real] = np.sort(rng.choice(LABELS, num_real, replace=False))
    channels = np.sort(rng.choice(6, 4, replace=False))
    coordinates = {Axis(6, (4,)): channels, label: np.append(labels, LABELS), plain: labels}
    return (
        Cut(shapes, axes, ((True,),) * 3),
        {axis: tf.constant(index, tf.int32) for axis, index in coordinates.items()},
        tf.constant((labels >= 0) & (rng.random(num_labels) < 0.7)),
    )


def build_coordinates(submodel, kind, seed):
    """Coordinates of one client: the first ones, known while tracing, or random ones."""
    rng, indices = np.random.default_rng(seed), {}
    for axis in (WIDE, DEEP):
        size = axis.sizes[submodel]
        chosen = range(size) if kind == "first" else np.sort(rng.choice(axis.size, size, replace=False))
        indices[axis] = tf.constant(list(chosen), tf.int32)
    return indices


def columns_of(cut, submodel, coordinates):
    """int [values of the sub-model], the column of each value in the global row; -1 for entries at -1."""
    columns, first = [], 0
    for shape, axes, contained in zip(cut.shapes, cut.axes, cut.contained):
        numbers = first + np.arange(math.prod(shape)).reshape(shape)
        first += numbers.size
        if contained[submodel]:
            index = [np.arange(size) if axis is None else coordinates[axis].numpy() for size, axis in zip(shape, axes)]
            grid = np.meshgrid(*index, indexing="ij")
            columns.append(np.where(np.min(grid, axis=0) < 0, -1, numbers[tuple(grid)]).ravel())
    return np.concatenate(columns)


def random_row(cut, seed=0):
    return np.random.default_rng(seed).normal(size=sum(map(math.prod, cut.shapes)))


@pytest.mark.parametrize("kinds", [("first", "first"), ("random", "random"), ("first", "random"), ("random",)])
@pytest.mark.parametrize("submodel", [0, 1])
def test_rows_are_gathered_and_summed_by_their_coordinates(submodel, kinds):
    cut = SubmodelCut.of(CUT, submodel, FIRST_STAGES)
    coordinates = [build_coordinates(submodel, kind, seed) for seed, kind in enumerate(kinds)]
    columns = [columns_of(CUT, submodel, indices) for indices in coordinates]
    # One row for all clients, then one for each.
    row, rows = random_row(CUT), np.stack([random_row(CUT, seed) for seed in range(1, 1 + len(kinds))])
    gathered = cut.gather(tf.constant(row), coordinates)
    np.testing.assert_array_equal(gathered, [row[index] for index in columns])
    separate = cut.gather(tf.constant(rows), coordinates)
    np.testing.assert_array_equal(separate, [each[index] for each, index in zip(rows, columns)])
    trained, done = gathered.numpy() + separate.numpy(), np.array([2, 3][: len(kinds)])
    first_stage = np.repeat(FIRST_STAGES, list(map(math.prod, SHAPES)))
    expected = np.zeros(row.shape)
    for client_row, index, stages in zip(trained, columns, done):
        expected[index] += np.where((first_stage[index] > 0) & (first_stage[index] <= stages), client_row, 0)
    actual = cut.scatter_sum(tf.constant(trained), coordinates, tf.constant(done))
    np.testing.assert_array_equal(actual, expected)
    assert 0 < np.count_nonzero(expected) < expected.size


@pytest.mark.parametrize("kind", ["first", "random"])
@pytest.mark.parametrize("submodel", [0, 1])
def test_overwritten_row_keeps_entries_outside_the_submodel(submodel, kind):
    cut, coordinates = SubmodelCut.of(CUT, submodel, FIRST_STAGES), build_coordinates(submodel, kind, 3)
    row, columns = random_row(CUT), columns_of(CUT, submodel, coordinates)
    client_row = random_row(CUT, 1)[: len(columns)]
    expected = row.copy()
    expected[columns] = client_row
    actual = cut.overwrite(tf.constant(row), tf.constant(client_row), coordinates)
    np.testing.assert_array_equal(actual, expected)
    assert 0 < np.count_nonzero(expected == row) < row.size


def test_padding_reads_entry_0_and_only_merged_labels_are_scattered():
    rng = np.random.default_rng(0)
    for _ in range(30):
        cut, coordinates, present = label_case(rng)
        submodel, row = SubmodelCut.of(cut, 0, [1] * 3), random_row(cut)
        (gathered,) = submodel.gather(tf.constant(row), [coordinates])
        padded = {axis: tf.maximum(index, 0) for axis, index in coordinates.items()}
        np.testing.assert_array_equal(gathered, row[columns_of(cut, 0, padded)])
        merged = merged_coordinates(coordinates, present)
        columns = columns_of(cut, 0, merged)
        expected = np.zeros(row.shape)
        expected[columns[columns >= 0]] = gathered.numpy()[columns >= 0]
        np.testing.assert_array_equal(submodel.scatter_sum(gathered[None], [merged]), expected)


def test_equal_coordinates_are_scattered_once():
    """Values are summed first, so a block needs as few operations as one client."""
    cut = SubmodelCut.of(CUT, 0, [1] * 7)
    size = sum(segment.part_size for segment in cut.segments)

    def operations(clients, kind):
        @tf.function(autograph=False)
        def summed(rows):
            return cut.scatter_sum(rows, [build_coordinates(0, kind, client) for client in range(clients)])

        graph = summed.get_concrete_function(tf.TensorSpec([clients, size])).graph
        return sum(operation.type in ("Pad", "PadV2", "GatherV2") for operation in graph.get_operations())

    assert operations(4, "first") == operations(1, "first") < operations(4, "random")
    part, first = cut.segments[0], build_coordinates(0, "first", 0)
    assert have_same_coordinates(part, [first] * 2)
    assert not have_same_coordinates(part, [first, build_coordinates(0, "random", 1)])


def test_inverse_index_contains_every_coordinate():
    rng = np.random.default_rng(2)
    for _ in range(30):
        size = int(rng.integers(1, 9))
        index = rng.permutation(size)[: rng.integers(0, size + 1)]
        index = np.where(rng.random(len(index)) < 0.3, -1, index)
        positions = positions_in(tf.constant(index, tf.int32), size).numpy()
        for coordinate in range(size):
            matches = np.flatnonzero(index == coordinate)
            assert positions[coordinate] == (matches[0] if matches.size else len(index))


def covered(cut, clients, weights, zeros=False):
    """`coverage` of clients with these coordinates."""
    masks = {axis: tf.stack([axis_mask(axis, each, tf.float64) for each in clients]) for axis in cut.distinct}
    return coverage(cut, masks, weights, zeros).numpy()


def test_coverage_counts_clients_with_the_weight_that_they_have_for_a_value():
    clients = [build_coordinates(0, "random", seed) for seed in range(3)]
    columns = np.stack([np.isin(np.arange(sum(map(math.prod, SHAPES))), columns_of(CUT, 0, each)) for each in clients])
    weights, others = tf.constant([1.0, 2, 3], tf.float64), tf.constant([1.0, 0, 0], tf.float64)
    actual = covered(CUT, clients, [*[weights] * 4, *[others] * 3])
    expected = np.where(np.arange(len(actual)) < 37, weights.numpy() @ columns, others.numpy() @ columns)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("zeros", [False, True])
def test_lacking_channels_count_as_zeros_and_absent_labels_never(zeros):
    label = Axis(LABELS, (LABELS,), label=True)
    cut = Cut(SHAPES[:1] + ((LABELS,),), AXES[:1] + ((label,),), ((True,),) * 2)
    coordinates = build_coordinates(0, "first", 0) | {label: tf.constant([0, 2, -1, -1, -1, -1, -1])}
    actual = covered(cut, [coordinates], [tf.ones([1], tf.float64)] * 2, zeros)
    assert actual[:10].tolist() == [1] * (10 if zeros else 6) + [0] * (0 if zeros else 4)
    assert actual[10:].tolist() == [1, 0, 1, 0, 0, 0, 0]
