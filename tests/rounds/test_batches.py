"""Batches of a block's clients: buffers of frozen units, and labels by their positions on the axes of clients."""

import numpy as np
import tensorflow as tf

from hetero_tf.data.inputs import Input
from hetero_tf.data.inputs.examples import Examples, Pass
from hetero_tf.planning.packing import BlockPlan
from hetero_tf.rounds.batches import Batches


def test_frozen_units_run_once_per_example_and_short_batches_are_padded():
    table, seen = np.random.default_rng(0).normal(size=(9, 3)), []

    def read(x, y, rows, start, key, labels, training, length):
        return rows, rows

    def forward(rows):
        tf.py_function(lambda rows: seen.append(rows.numpy().ravel().tolist()), [rows], [])
        return tf.gather(tf.constant(table), rows)

    # Two ticks of another stage, then two epochs of five examples in different orders.
    rows = tf.constant([[[8, 8], [8, 8], [4, 0], [7, 2], [5, -1], [2, 5], [0, 4], [7, -1]]], tf.int32)
    stages = tf.constant([0] * 2 + [1] * 6)
    plan = BlockPlan(
        tf.zeros([1], tf.int32), tf.zeros([1], tf.int32), tf.constant(8), rows, tf.zeros_like(stages), stages
    )
    source, sizes, longest = Input(read, None, None, None, None, False, False), tf.constant([5]), Pass(4, 2)
    examples = Examples(source, tf.constant(table), None, 0, None, None, None, (None,), sizes, longest)
    batches = Batches(examples, plan, plan.clients, None, plan.ticks).through_buffer(1, forward, (3,), tf.float64)
    assert seen == [[4, 0], [7, 2], [5, 0]]
    for tick, expected in ((5, [[2, 5]]), (7, [[7]]), (6, [[0, 4]])):
        inputs, targets = batches.read(tick, None, None)
        assert targets.numpy().tolist() == expected
        np.testing.assert_array_equal(inputs, table[expected])
    assert len(seen) == 3
