"""The global values as one row: gather, scatter and coverage equal those of the single variables."""

import numpy as np
import pytest
import tensorflow as tf
from test_gather import random_case

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.gather import gather, scatter
from hetero_tf.rounds.global_row import (
    concat_values,
    flatten_coverage,
    gather_rows,
    have_same_coordinates,
    pack_state,
    scatter_rows,
    segments,
    split_values,
    unpack_state,
)
from hetero_tf.rounds.merge import coverage

WIDE, DEEP = Axis(5, (3, 2)), Axis(4, (4, 1))
SHAPES = ((5, 2), (3,), (2, 2), (4, 5), (6,), (2,), (5,))
AXES = ((WIDE, None), (None,), (None, None), (DEEP, WIDE), (None,), (None,), (WIDE,))
CONTAINED = ((True, True), (True, True), (True, True), (True, True), (True, False), (True, True), (True, True))
CUT = Cut(SHAPES, AXES, CONTAINED)


def random_values(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [tf.constant(rng.normal(size=shape)) for shape in shapes]


def build_coordinates(submodel, kind, seed):
    """Coordinates of one client: the first ones, known while tracing, or random ones."""
    rng, indices = np.random.default_rng(seed), {}
    for axis in (WIDE, DEEP):
        size = axis.sizes[submodel]
        chosen = range(size) if kind == "first" else np.sort(rng.choice(axis.size, size, replace=False))
        indices[axis] = tf.constant(list(chosen), tf.int32)
    return indices


def test_tensors_of_any_shapes_are_concatenated():
    values = random_values(SHAPES)
    row = concat_values(values)
    assert row.numpy().tolist() == np.concatenate([value.numpy().reshape(-1) for value in values]).tolist()
    for actual, value in zip(split_values(row, SHAPES), values, strict=True):
        np.testing.assert_array_equal(actual, value)
    (single_value,) = split_values(concat_values(values[:1]), SHAPES[:1])
    np.testing.assert_array_equal(single_value, values[0])


def test_packed_state_is_restored():
    state = {
        "weights": random_values(SHAPES),
        "slots": [random_values(SHAPES, 1)],
        "tables": {"memory": {0: tf.ones([3, 5, 2])}},
    }
    rows = pack_state(state)
    assert rows["weights"].shape == (sum(int(np.prod(shape)) for shape in SHAPES),) and len(rows["slots"]) == 1
    back = unpack_state(rows, SHAPES)
    assert back["tables"] is state["tables"]
    for actual, value in zip(
        [*back["weights"], *back["slots"][0]], [*state["weights"], *state["slots"][0]], strict=True
    ):
        np.testing.assert_array_equal(actual, value)


def test_adjacent_complete_values_are_one_segment():
    positions = [segment.positions for segment in segments(CUT, 0, [1] * 7)]
    assert positions == [(0,), (1, 2), (3,), (4, 5), (6,)]
    lacking = segments(CUT, 1, [1] * 7)
    assert [(segment.positions, segment.contained) for segment in lacking][3:5] == [((4,), False), ((5,), True)]
    assert [segment.positions for segment in segments(CUT, 0, [1, 1, 2, 1, 1, 1, 1])][1:3] == [(1,), (2,)]
    assert [segment.size for segment in segments(CUT, 0, [1] * 7)] == [10, 7, 20, 8, 5]


@pytest.mark.parametrize("kinds", [("first", "first"), ("random", "random"), ("first", "random"), ("random",)])
@pytest.mark.parametrize("submodel", [0, 1])
def test_rows_are_gathered_and_scattered_like_variables(submodel, kinds):
    values, row = random_values(SHAPES), concat_values(random_values(SHAPES))
    client_coordinates = [build_coordinates(submodel, kind, seed) for seed, kind in enumerate(kinds)]
    rows = gather_rows(CUT, submodel, row, client_coordinates)
    for actual, indices in zip(rows, client_coordinates, strict=True):
        np.testing.assert_array_equal(actual, concat_values(gather(CUT, submodel, values, indices)))
    trained = rows + tf.constant(np.random.default_rng(3).normal(size=rows.shape))
    # A value counts always, never, or from the second or third stage on.
    first_merged_stage, done = [1, 0, 2, 3, 1, 1, 2], tf.constant([2, 3][: len(kinds)])
    expected = np.zeros(row.shape)
    for row_of_client, indices, stages in zip(trained, client_coordinates, done.numpy(), strict=True):
        parts = split_values(row_of_client, [tuple(part.shape) for part in gather(CUT, submodel, values, indices)])
        scattered = scatter(CUT, submodel, parts, indices)
        counted = [
            np.zeros(shape) if part is None or not 0 < first <= stages else part
            for part, first, shape in zip(scattered, first_merged_stage, SHAPES, strict=True)
        ]
        expected += np.concatenate([np.reshape(part, -1) for part in counted])
    actual = scatter_rows(CUT, submodel, trained, client_coordinates, first_merged_stage, done)
    np.testing.assert_array_equal(actual, expected)
    assert 0 < np.count_nonzero(expected) < expected.size


def test_labels_and_padding_are_gathered_and_scattered_like_variables():
    rng = np.random.default_rng(0)
    for _ in range(20):
        cut, values, client_coordinates, _ = random_case(rng)
        tensors = [tf.constant(value) for value in values]
        (row,) = gather_rows(cut, 1, concat_values(tensors), [client_coordinates])
        parts = gather(cut, 1, tensors, client_coordinates)
        np.testing.assert_array_equal(row, concat_values(parts))
        back = scatter_rows(cut, 1, row[None], [client_coordinates], [1] * 3)
        np.testing.assert_array_equal(back, concat_values(scatter(cut, 1, parts, client_coordinates)))


def test_client_values_replace_global_values():
    row, client_coordinates = (
        concat_values(random_values(SHAPES)),
        [build_coordinates(0, "first", 0), build_coordinates(0, "random", 1)],
    )
    client_values = [{1: tf.constant([7.0, 8, 9], tf.float64), 3: random_values(SHAPES, seed)[3]} for seed in (5, 6)]
    actual = gather_rows(CUT, 0, row, client_coordinates, client_values)
    for row_of_client, indices, values in zip(actual, client_coordinates, client_values, strict=True):
        replaced = [values.get(position, value) for position, value in enumerate(random_values(SHAPES))]
        np.testing.assert_array_equal(row_of_client, concat_values(gather(CUT, 0, replaced, indices)))


def test_coverage_of_variables_equals_coverage_of_the_row():
    masks = {
        axis: tf.constant(np.random.default_rng(axis.size).integers(0, 2, (3, axis.size)), tf.float64)
        for axis in (WIDE, DEEP)
    }
    weights, others = tf.constant([1.0, 2, 3], tf.float64), tf.constant([1.0, 0, 0], tf.float64)
    covered = coverage(CUT, masks, [weights, weights, weights, weights, others, others, others])
    expected = np.concatenate([np.broadcast_to(value, shape).reshape(-1) for value, shape in zip(covered, SHAPES)])
    np.testing.assert_array_equal(flatten_coverage(covered, SHAPES), expected)
    assert set(expected[[10, -6]]) == {6.0, 1.0}


def test_equal_coordinates_are_scattered_once():
    """Values are summed first, so a block needs as few operations as one client."""

    def operations(clients, kind):
        @tf.function(autograph=False)
        def summed(rows):
            return scatter_rows(
                CUT, 0, rows, [build_coordinates(0, kind, client) for client in range(clients)], [1] * 7
            )

        size = gather_rows(CUT, 0, concat_values(random_values(SHAPES)), [build_coordinates(0, "first", 0)]).shape[1]
        graph = summed.get_concrete_function(tf.TensorSpec([clients, size])).graph
        return sum(operation.type in ("Pad", "PadV2", "GatherV2") for operation in graph.get_operations())

    assert operations(4, "first") == operations(1, "first") < operations(4, "random")
    assert have_same_coordinates(AXES[0], [build_coordinates(0, "first", 0)] * 2)
    assert not have_same_coordinates(AXES[0], [build_coordinates(0, "first", 0), build_coordinates(0, "random", 1)])
