"""Coverage of the global row and means over it, compared with the clients that reach each entry."""

import numpy as np
import pytest
import tensorflow as tf
from test_submodel_cut import AXES, CUT, LABELS, SHAPES, build_coordinates, columns_of, label_case, random_row

from hetero_tf.models.cut import Axis, Cut
from hetero_tf.rounds.merge import axis_mask, coverage, masked_mean
from hetero_tf.rounds.submodel_cut import SubmodelCut, merged_coordinates


def covered(cut, clients, weights, zeros=False):
    """`coverage` of clients with these coordinates."""
    masks = {axis: tf.stack([axis_mask(axis, each, tf.float64) for each in clients]) for axis in cut.distinct}
    return coverage(cut, masks, weights, zeros).numpy()


def expected_coverage(cut, clients, weights):
    """The sum of [clients] weights over the clients that reach each entry; `weights`: one list of them for each value."""
    sizes = [int(np.prod(shape)) for shape in cut.shapes]
    expected, weight_of_entry = np.zeros(sum(sizes)), np.repeat(np.asarray(weights), sizes, axis=0)
    for number, coordinates in enumerate(clients):
        columns = columns_of(cut, 0, coordinates)
        columns = columns[columns >= 0]
        expected[columns] += weight_of_entry[columns, number]
    return expected


def random_cases():
    """Cuts with label axes, and the coordinates of four clients that lack random ones."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        cut, coordinates, present = label_case(rng)
        merged, clients = merged_coordinates(coordinates, present), []
        for chance in rng.random(4):
            clients.append(
                {axis: tf.where(rng.random(index.shape[0]) < chance, index, -1) for axis, index in merged.items()}
            )
        yield rng, cut, clients


def test_coverage_is_the_weighted_count_of_clients_on_every_entry():
    for rng, cut, clients in random_cases():
        weights = rng.random(4)
        expected = expected_coverage(cut, clients, [weights] * 3)
        np.testing.assert_allclose(covered(cut, clients, [weights] * 3), expected, atol=1e-15)


def test_merged_values_are_weighted_means_of_the_clients_that_cover_them():
    seen = set()
    for rng, cut, clients in random_cases():
        columns, weights, old = [columns_of(cut, 0, each) for each in clients], rng.integers(0, 4, 4), random_row(cut)
        rows = rng.normal(size=(4, len(columns[0])))
        total = SubmodelCut.of(cut, 0, [1] * 3).scatter_sum(tf.constant(rows * weights[:, None]), clients)
        mean = masked_mean(tf.constant(old), total, tf.constant(covered(cut, clients, [weights.astype(float)] * 3)))
        for entry, value in enumerate(old):
            covering = [client for client in range(4) if weights[client] and entry in columns[client]]
            seen.add(len(covering))
            if not covering:
                assert mean[entry].numpy() == value
                continue
            values = [rows[client, columns[client] == entry].item() for client in covering]
            assert mean[entry].numpy() == pytest.approx(np.average(values, weights=weights[covering]), rel=1e-12)
    assert seen == {0, 1, 2, 3, 4}


def test_values_have_separate_client_weights():
    clients = [build_coordinates(0, "random", seed) for seed in range(3)]
    weights, others = tf.constant([1.0, 2, 3], tf.float64), tf.constant([1.0, 0, 0], tf.float64)
    of_values = [weights, weights, weights, weights, others, others, others]
    actual = covered(CUT, clients, of_values)
    np.testing.assert_array_equal(actual, expected_coverage(CUT, clients, of_values))
    # The complete values 1 and 5.
    assert set(actual[10:13]) == {6.0} and set(actual[-7:-5]) == {1.0}


@pytest.mark.parametrize("zeros", [False, True])
def test_lacking_channels_count_as_zeros_and_absent_labels_never(zeros):
    label = Axis(LABELS, (LABELS,), label=True)
    cut = Cut(SHAPES[:1] + ((LABELS,),), AXES[:1] + ((label,),), ((True,),) * 2)
    coordinates = build_coordinates(0, "first", 0) | {label: tf.constant([0, 2, -1, -1, -1, -1, -1])}
    actual = covered(cut, [coordinates], [tf.ones([1], tf.float64)] * 2, zeros)
    assert actual[:10].tolist() == [1] * (10 if zeros else 6) + [0] * (0 if zeros else 4)
    assert actual[10:].tolist() == [1, 0, 1, 0, 0, 0, 0]
