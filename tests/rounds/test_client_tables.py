"""Rows of client tables: reads and writes of the values that a sub-model has, of some or of all global values."""

import numpy as np
import pytest
import tensorflow as tf
from test_submodel_cut import CUT, SHAPES, build_coordinates, columns_of, random_row

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.client_tables import TableCut, read_tables, write_tables

SIZES = [int(np.prod(shape)) for shape in SHAPES]


@pytest.mark.parametrize("submodel", [0, 1])
@pytest.mark.parametrize("positions", [(1, 3, 4), (0, 5, 6), range(7), (4,)])
def test_stored_values_replace_global_ones_and_are_written_back(positions, submodel):
    table, coordinates = TableCut.of(CUT, submodel, positions), build_coordinates(submodel, "random", 1)
    columns, is_stored = columns_of(CUT, submodel, coordinates), np.repeat(np.isin(range(7), positions), SIZES)
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
