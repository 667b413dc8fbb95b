"""Sub-models and rows of client tables, gathered and written back, compared with NumPy indices on random axes."""

import math

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.client_tables import TableCut, read_tables, write_tables
from hetero_tf.rounds.merge import axis_mask, coverage
from hetero_tf.rounds.submodel_cut import SubmodelCut, have_same_coordinates, positions_in

LABELS = 7
# A cut with segments of every kind: parts of values, adjacent complete values, a value that sub-model 1 lacks, one that
# sub-model 0 has in another order if its coordinates are random.
WIDE, DEEP = Axis(5, (3, 2)), Axis(4, (4, 1))
SHAPES = ((5, 2), (3,), (2, 2), (4, 5), (6,), (2,), (5,), (4, 3))
AXES = ((WIDE, None), (None,), (None, None), (DEEP, WIDE), (None,), (None,), (WIDE,), (DEEP, None))
CONTAINED = tuple((True, position != 4) for position in range(8))
CUT = Cut(SHAPES, AXES, CONTAINED)
# A value counts always, never, or from the second or third stage on.
FIRST_STAGES = (1, 0, 2, 3, 1, 1, 2, 1)


def build_coordinates(submodel, kind, seed):
    """Coordinates of one client: the first ones, known while tracing, or random ones."""
    rng, indices = np.random.default_rng(seed), {}
    for axis in (WIDE, DEEP):
        size = axis.sizes[submodel]
        chosen = range(size) if kind == "first" else rng.choice(axis.size, size, replace=False)
        indices[axis] = tf.constant(list(chosen), tf.int32)
    return indices


def columns_of(cut, submodel, coordinates):
    """int [values of the sub-model], the column of each value in the global row."""
    columns, first = [], 0
    for shape, axes, contained in zip(cut.shapes, cut.axes, cut.contained):
        numbers = first + np.arange(math.prod(shape)).reshape(shape)
        first += numbers.size
        if contained[submodel]:
            index = [np.arange(size) if axis is None else coordinates[axis].numpy() for size, axis in zip(shape, axes)]
            columns.append(numbers[np.ix_(*index)].ravel())
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


def test_equal_coordinates_are_scattered_once():
    """Values are summed first, so a block needs as few operations as one client."""
    cut = SubmodelCut.of(CUT, 0, [1] * 8)
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


@pytest.mark.parametrize("index", [[0, 1, 2], [4, 0, -1, 2], [-1, -1], [3]])
def test_coordinates_that_tracing_knows_have_the_same_positions(index):
    axis = Axis(4, (4,), extra=1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def unknown(index):
        return positions_in(index, 5), axis_mask(axis, {axis: index}, tf.float32)

    index = tf.constant(index)
    for known, computed in zip((positions_in(index, 5), axis_mask(axis, {axis: index}, tf.float32)), unknown(index)):
        assert known.dtype == computed.dtype
        np.testing.assert_array_equal(known, computed)


def covered(cut, clients, weights, kinds, zeros=False):
    """`coverage` of clients with these coordinates."""
    masks = {axis: tf.stack([axis_mask(axis, each, tf.float64) for each in clients]) for axis in cut.distinct}
    return coverage(cut, masks, weights, kinds, zeros).numpy()


def test_coverage_counts_clients_with_the_weight_that_they_have_for_a_value():
    clients = [build_coordinates(0, "random", seed) for seed in range(3)]
    columns = np.stack([np.isin(np.arange(sum(map(math.prod, SHAPES))), columns_of(CUT, 0, each)) for each in clients])
    weights, others = tf.constant([1.0, 2, 3], tf.float64), tf.constant([1.0, 0, 0], tf.float64)
    actual = covered(CUT, clients, {0: weights, 1: others}, [0] * 4 + [1] * 4)
    expected = np.where(np.arange(len(actual)) < 37, weights.numpy() @ columns, others.numpy() @ columns)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("zeros", [False, True])
def test_lacking_channels_count_as_zeros_and_absent_labels_never(zeros):
    label = Axis(LABELS, (LABELS,), label=True)
    cut = Cut(SHAPES[:1] + ((LABELS,),), AXES[:1] + ((label,),), ((True,),) * 2)
    coordinates = build_coordinates(0, "first", 0) | {label: tf.constant([0, 2, -1, -1, -1, -1, -1])}
    actual = covered(cut, [coordinates], {0: tf.ones([1], tf.float64)}, [0, 0], zeros)
    assert actual[:10].tolist() == [1] * (10 if zeros else 6) + [0] * (0 if zeros else 4)
    assert actual[10:].tolist() == [1, 0, 1, 0, 0, 0, 0]


SIZES = [int(np.prod(shape)) for shape in SHAPES]


@pytest.mark.parametrize("submodel", [0, 1])
@pytest.mark.parametrize("positions", [(1, 3, 4), (0, 5, 6, 7), range(8), (4,)])
def test_stored_values_replace_global_ones_and_are_written_back(positions, submodel):
    table, coordinates = TableCut.of(CUT, submodel, positions), build_coordinates(submodel, "random", 1)
    columns, is_stored = columns_of(CUT, submodel, coordinates), np.repeat(np.isin(range(8), positions), SIZES)
    global_row, stored = random_row(CUT), random_row(CUT, 1)
    mixed = np.where(is_stored, stored, global_row)
    rows = table.read(tf.constant(stored[None, is_stored]), [coordinates], tf.constant(global_row[None, columns]))
    np.testing.assert_array_equal(rows[0], mixed[columns])
    trained, expected = rows[0] + 1, stored.copy()
    expected[columns] = trained
    actual = table.write(tf.constant(stored[is_stored]), trained, coordinates)
    np.testing.assert_array_equal(actual, expected[is_stored])


def test_a_network_of_an_ensemble_has_a_separate_row():
    member = Axis(3, (1,), member=True)
    table = TableCut.of(Cut(((3, 2), (3, 4)), ((member, None), (member, None)), ((True,),) * 2), 0, (0, 1))
    assert table.columns == ((0, 6),)
    coordinates = {member: tf.constant([2])}
    written = table.write(tf.zeros([6]), tf.range(6.0), coordinates)
    assert written.numpy().tolist() == list(range(6))
    # [registered, networks, columns]; client 1 returns its networks 0 and 2, client 0 is excluded.
    tables = {"personal": tf.zeros([2, 3, 6])}
    clients, members = tf.constant([1, 1, 0, -1]), tf.constant([0, 2, 1, 0])
    new = {"personal": tf.reshape(tf.range(24.0), [4, 6])}
    after = write_tables(tables, new, clients, members, True, tf.constant([True, True, False, True]))["personal"]
    assert after[0].numpy().max() == 0
    assert after[1].numpy().tolist() == [list(range(6)), [0] * 6, list(range(6, 12))]
    read = read_tables({"personal": after}, tf.constant([1, 0]), tf.constant([2, 2]), True)["personal"]
    assert read.numpy().tolist() == [list(range(6, 12)), [0] * 6]
