"""Gather and scatter by shapes, compared with NumPy indices, on random axes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.models.cut import Axis, Cut, cut_of_shapes, find_label_axes
from hetero_tf.rounds.gather import gather, positions_in, scatter, select_coordinates, select_merged
from hetero_tf.rounds.merge import axis_masks, coverage

LABELS = 7


def random_case(rng):
    """A cut of three variables on random axes, global values, coordinates of one client and its present labels."""
    sizes = rng.integers(2, 7, 2).tolist()
    submodel_sizes = [int(rng.integers(1, size + 1)) for size in sizes]
    wide, narrow = (Axis(size, (size, submodel_size)) for size, submodel_size in zip(sizes, submodel_sizes))
    num_labels = int(rng.integers(2, LABELS + 1))
    label = Axis(LABELS, (num_labels, num_labels), label=True, extra=1)
    plain = Axis(LABELS, (num_labels, num_labels), label=True)
    axes = ((None, wide, narrow), (narrow, plain), (label, wide))
    shapes = tuple(tuple(3 if axis is None else axis.size + axis.extra for axis in row) for row in axes)
    num_real = int(rng.integers(1, num_labels + 1))
    labels = np.full(num_labels, -1)
    labels[:num_real] = np.sort(rng.choice(LABELS, num_real, replace=False))
    coordinates = {
        axis: np.sort(rng.choice(size, submodel_size, replace=False))
        for axis, size, submodel_size in zip((wide, narrow), sizes, submodel_sizes)
    }
    coordinates |= {label: np.append(labels, LABELS), plain: labels}
    values = [rng.normal(size=shape) for shape in shapes]
    present = labels >= 0
    present[:num_real] &= rng.random(num_real) < 0.7
    return (
        Cut(shapes, axes, ((True, True),) * 3),
        values,
        {a: tf.constant(i, tf.int32) for a, i in coordinates.items()},
        present,
    )


def brute_mask(cut, position, rows):
    """Mask of the entries of a variable that the rows reach."""
    mask = np.zeros(cut.shapes[position], bool)
    index = [
        np.arange(size) if axis is None else rows[axis].numpy()
        for size, axis in zip(cut.shapes[position], cut.axes[position])
    ]
    mask[np.ix_(*[coordinates[coordinates >= 0] for coordinates in index])] = True
    return mask


def random_cases(count):
    rng = np.random.default_rng(0)
    return [random_case(rng) for _ in range(count)]


def test_scatter_of_gather_keeps_merged_entries_and_zeros_others():
    for cut, values, coordinates, present in random_cases(60):
        rows = select_merged(cut, coordinates, tf.constant(present))
        parts = gather(cut, 0, [tf.constant(value) for value in values], coordinates)
        for position, back in enumerate(scatter(cut, 0, parts, rows)):
            mask = brute_mask(cut, position, rows)
            np.testing.assert_array_equal(back, np.where(mask, values[position], 0))


def test_gathered_part_is_indexed_global_value_with_row_0_as_padding():
    for cut, values, coordinates, _ in random_cases(30):
        for position, part in enumerate(gather(cut, 0, [tf.constant(value) for value in values], coordinates)):
            index = [
                np.arange(size) if axis is None else np.maximum(coordinates[axis].numpy(), 0)
                for size, axis in zip(cut.shapes[position], cut.axes[position])
            ]
            np.testing.assert_array_equal(part, values[position][np.ix_(*index)])


def test_absent_labels_padding_and_the_mask_token_are_not_merged():
    axis = Axis(5, (3,), label=True, extra=1)
    cut = Cut(((6, 2),), ((axis, None),), ((True,),))
    coordinates = select_coordinates(cut, 0, None, None, None, None, tf.constant([1, 4, -1]), None)
    assert coordinates[axis].numpy().tolist() == [1, 4, -1, 5]
    rows = select_merged(cut, coordinates, tf.constant([False, True, False]))
    assert rows[axis].numpy().tolist() == [-1, 4, -1, -1]
    masks = axis_masks(cut, rows, tf.float32)
    assert masks[axis].numpy().tolist() == [0, 0, 0, 0, 1, 0]


def test_coverage_is_the_weighted_count_of_clients_on_every_entry():
    rng = np.random.default_rng(1)
    for _ in range(20):
        cut, _, coordinates, present = random_case(rng)
        clients = []
        for _ in range(4):
            chance = rng.random()
            clients.append(
                {
                    axis: tf.where(rng.random(index.shape[0]) < chance, index, -1)
                    for axis, index in select_merged(cut, coordinates, tf.constant(present)).items()
                }
            )
        weights = rng.random(4)
        masks = [axis_masks(cut, rows, tf.float64) for rows in clients]
        actual = coverage(
            cut, {axis: tf.stack([mask[axis] for mask in masks]) for axis in cut.distinct}, [weights] * len(cut.shapes)
        )
        for position, value in enumerate(actual):
            expected = sum(weight * brute_mask(cut, position, rows) for weight, rows in zip(weights, clients))
            np.testing.assert_allclose(np.broadcast_to(value, cut.shapes[position]), expected, atol=1e-15)


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


def dense(units, classes, name="wide"):
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(units, name=name)(inputs)
    return keras.Model(inputs, keras.layers.Dense(classes, name="head")(hidden))


def shapes(model):
    return {variable.path: tuple(variable.shape) for variable in model.trainable_variables}


def test_cut_is_derived_from_shapes_alone():
    cut = cut_of_shapes(
        shapes(dense(6, 9)),
        [shapes(dense(6, 3)), shapes(dense(2, 3))],
        {"head/kernel": {1: 0}, "head/bias": {0: 0}},
        classes=9,
    )
    wide, label = Axis(6, (6, 2)), Axis(9, (3, 3), label=True)
    assert cut.shapes == ((4, 6), (6,), (6, 9), (9,))
    assert cut.axes == ((None, wide), (wide,), (wide, label), (label,))
    assert cut.distinct == (wide, label)
    assert cut.contained == ((True, True),) * 4


def test_level_without_a_variable_has_the_others():
    global_shapes = {"stem/kernel": (4, 6), "deep/kernel": (6, 6)}
    cut = cut_of_shapes(global_shapes, [global_shapes, {"stem/kernel": (4, 2)}], {}, classes=9)
    wide = Axis(6, (6, 2))
    assert cut.axes == ((None, wide), (None, None))
    assert cut.contained == ((True, True), (True, False))
    values = [tf.ones((4, 6)), tf.ones((6, 6))]
    (part,) = gather(cut, 1, values, {wide: tf.range(2)})
    assert part.shape == (4, 2)
    stem, deep = scatter(cut, 1, [part], {wide: tf.range(2)})
    assert stem.numpy().sum() == 8 and deep is None


def test_ensemble_network_is_one_entry_of_the_first_axis():
    cut = cut_of_shapes({"kernel": (3, 4, 2)}, [{"kernel": (1, 4, 2)}], {}, classes=9, members=True)
    (axis,) = cut.distinct
    assert axis == Axis(3, (1,), member=True)
    coordinates = select_coordinates(cut, 0, None, None, None, None, None, tf.constant(2))
    (part,) = gather(cut, 0, [tf.reshape(tf.range(24), (3, 4, 2))], coordinates)
    assert part.numpy().tolist() == np.arange(16, 24).reshape(1, 4, 2).tolist()
    (back,) = scatter(cut, 0, [part], coordinates)
    assert back.numpy()[:2].sum() == 0 and back.numpy()[2].tolist() == part.numpy()[0].tolist()


def test_label_axes_are_the_ones_that_grow_with_the_classes():
    def build(classes):
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(2, name="two")(keras.layers.Embedding(classes + 1, 2, name="words")(inputs))
        return keras.Model(inputs, keras.layers.Dense(classes, name="head")(hidden))

    assert find_label_axes(*(shapes(build(classes)) for classes in (2, 3))) == {
        "words/embeddings": {0: 1},
        "head/kernel": {1: 0},
        "head/bias": {0: 0},
    }


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (dense(7, 9), r"wide/kernel of a sub-model .* has shape \(4, 6\). Received: shape=\(4, 7\)"),
        (dense(2, 9, name="other"), r"other/kernel of a sub-model .* has shape None. Received: shape=\(4, 2\)"),
    ],
)
def test_level_outside_the_global_model_is_refused(level, expected):
    with pytest.raises(ValueError, match=f"^variable {expected}$"):
        cut_of_shapes(shapes(dense(6, 9)), [shapes(level)], {}, classes=9)
