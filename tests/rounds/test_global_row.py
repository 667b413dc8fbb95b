"""The global values as one row: what is taken, put back and covered is that of the variables one by one."""

import numpy as np
import pytest
import tensorflow as tf
from test_gather import case

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.gather import put, take
from hetero_tf.rounds.global_row import (
    coverage_row,
    in_rows,
    joined,
    put_rows,
    runs,
    same_for_all,
    split_values,
    take_rows,
    unpack_state,
)
from hetero_tf.rounds.merge import coverage

WIDE, DEEP = Axis(5, (3, 2)), Axis(4, (4, 1))
SHAPES = ((5, 2), (3,), (2, 2), (4, 5), (6,), (2,), (5,))
AXES = ((WIDE, None), (None,), (None, None), (DEEP, WIDE), (None,), (None,), (WIDE,))
CONTAINED = ((True, True), (True, True), (True, True), (True, True), (True, False), (True, True), (True, True))
CUT = Cut(SHAPES, AXES, CONTAINED)


def values_of(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [tf.constant(rng.normal(size=shape)) for shape in shapes]


def coordinates(submodel, kind, seed):
    """Coordinates of one client: the first ones, known while tracing, or random ones."""
    rng, found = np.random.default_rng(seed), {}
    for axis in (WIDE, DEEP):
        size = axis.sizes[submodel]
        chosen = range(size) if kind == "first" else np.sort(rng.choice(axis.size, size, replace=False))
        found[axis] = tf.constant(list(chosen), tf.int32)
    return found


def test_tensors_of_any_shapes_lie_one_behind_the_other():
    values = values_of(SHAPES)
    row = joined(values)
    assert row.numpy().tolist() == np.concatenate([value.numpy().reshape(-1) for value in values]).tolist()
    for found, value in zip(split_values(row, SHAPES), values, strict=True):
        np.testing.assert_array_equal(found, value)
    (alone,) = split_values(joined(values[:1]), SHAPES[:1])
    np.testing.assert_array_equal(alone, values[0])


def test_a_state_comes_back_from_its_rows():
    state = {
        "weights": values_of(SHAPES),
        "slots": [values_of(SHAPES, 1)],
        "tables": {"memory": {0: tf.ones([3, 5, 2])}},
    }
    rows = in_rows(state)
    assert rows["weights"].shape == (sum(int(np.prod(shape)) for shape in SHAPES),) and len(rows["slots"]) == 1
    back = unpack_state(rows, SHAPES)
    assert back["tables"] is state["tables"]
    for found, value in zip(
        [*back["weights"], *back["slots"][0]], [*state["weights"], *state["slots"][0]], strict=True
    ):
        np.testing.assert_array_equal(found, value)


def test_neighbours_that_a_submodel_has_whole_are_one_run():
    whole = [run.positions for run in runs(CUT, 0, [1] * 7)]
    assert whole == [(0,), (1, 2), (3,), (4, 5), (6,)]
    lacking = runs(CUT, 1, [1] * 7)
    assert [(run.positions, run.contained) for run in lacking][3:5] == [((4,), False), ((5,), True)]
    assert [run.positions for run in runs(CUT, 0, [1, 1, 2, 1, 1, 1, 1])][1:3] == [(1,), (2,)]
    assert [run.size for run in runs(CUT, 0, [1] * 7)] == [10, 7, 20, 8, 5]


@pytest.mark.parametrize("kinds", [("first", "first"), ("random", "random"), ("first", "random"), ("random",)])
@pytest.mark.parametrize("submodel", [0, 1])
def test_rows_are_taken_and_put_as_variables_are(submodel, kinds):
    values, row = values_of(SHAPES), joined(values_of(SHAPES))
    where = [coordinates(submodel, kind, seed) for seed, kind in enumerate(kinds)]
    rows = take_rows(CUT, submodel, row, where)
    for found, place in zip(rows, where, strict=True):
        np.testing.assert_array_equal(found, joined(take(CUT, submodel, values, place)))
    trained = rows + tf.constant(np.random.default_rng(3).normal(size=rows.shape))
    # A value counts always, never, or from the second or third stage on.
    counts_from, done = [1, 0, 2, 3, 1, 1, 2], tf.constant([2, 3][: len(kinds)])
    wanted = np.zeros(row.shape)
    for one, place, stages in zip(trained, where, done.numpy(), strict=True):
        parts = split_values(one, [tuple(part.shape) for part in take(CUT, submodel, values, place)])
        placed = put(CUT, submodel, parts, place)
        counted = [
            np.zeros(shape) if part is None or not 0 < first <= stages else part
            for part, first, shape in zip(placed, counts_from, SHAPES, strict=True)
        ]
        wanted += np.concatenate([np.reshape(part, -1) for part in counted])
    found = put_rows(CUT, submodel, trained, where, counts_from, done)
    np.testing.assert_array_equal(found, wanted)
    assert 0 < np.count_nonzero(wanted) < wanted.size


def test_labels_and_padding_are_taken_and_put_as_variables_are():
    rng = np.random.default_rng(0)
    for _ in range(20):
        cut, values, where, _ = case(rng)
        tensors = [tf.constant(value) for value in values]
        (row,) = take_rows(cut, 1, joined(tensors), [where])
        parts = take(cut, 1, tensors, where)
        np.testing.assert_array_equal(row, joined(parts))
        back = put_rows(cut, 1, row[None], [where], [1] * 3)
        np.testing.assert_array_equal(back, joined(put(cut, 1, parts, where)))


def test_a_clients_own_values_stand_in_the_place_of_the_global_ones():
    row, where = joined(values_of(SHAPES)), [coordinates(0, "first", 0), coordinates(0, "random", 1)]
    own = [{1: tf.constant([7.0, 8, 9], tf.float64), 3: values_of(SHAPES, seed)[3]} for seed in (5, 6)]
    found = take_rows(CUT, 0, row, where, own)
    for one, place, values in zip(found, where, own, strict=True):
        replaced = [values.get(position, value) for position, value in enumerate(values_of(SHAPES))]
        np.testing.assert_array_equal(one, joined(take(CUT, 0, replaced, place)))


def test_what_covers_the_variables_covers_their_entries_in_the_row():
    masks = {
        axis: tf.constant(np.random.default_rng(axis.size).integers(0, 2, (3, axis.size)), tf.float64)
        for axis in (WIDE, DEEP)
    }
    weights, others = tf.constant([1.0, 2, 3], tf.float64), tf.constant([1.0, 0, 0], tf.float64)
    covered = coverage(CUT, masks, [weights, weights, weights, weights, others, others, others])
    wanted = np.concatenate([np.broadcast_to(value, shape).reshape(-1) for value, shape in zip(covered, SHAPES)])
    np.testing.assert_array_equal(coverage_row(covered, SHAPES), wanted)
    assert set(wanted[[10, -6]]) == {6.0, 1.0}


def test_what_clients_have_in_one_place_is_put_there_once():
    """Their values are summed up first, so a stack costs as few operations as one client."""

    def operations(clients, kind):
        @tf.function(autograph=False)
        def summed(rows):
            return put_rows(CUT, 0, rows, [coordinates(0, kind, client) for client in range(clients)], [1] * 7)

        size = take_rows(CUT, 0, joined(values_of(SHAPES)), [coordinates(0, "first", 0)]).shape[1]
        graph = summed.get_concrete_function(tf.TensorSpec([clients, size])).graph
        return sum(operation.type in ("Pad", "PadV2", "GatherV2") for operation in graph.get_operations())

    assert operations(4, "first") == operations(1, "first") < operations(4, "random")
    assert same_for_all(AXES[0], [coordinates(0, "first", 0)] * 2)
    assert not same_for_all(AXES[0], [coordinates(0, "first", 0), coordinates(0, "random", 1)])
