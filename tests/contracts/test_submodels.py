"""Contract of every sub-model in the package."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry

CASES = [(1, 1), (5, 1), (5, 3), (5, 5), (16, 1), (16, 11)]


@pytest.fixture(params=registry.names("submodels"))
def keep(request):
    function = registry.find("submodels", request.param).keep

    def call(size, count, round=0, client=0, seed=0):
        return function(size, count, *(tf.constant(value) for value in (round, client, seed))).numpy()

    call.function = function
    return call


def test_coordinates_are_distinct_int32_inside_the_axis(keep):
    for size, count in CASES:
        for round, client, seed in ((0, 0, 0), (3, 1, 7), (1000, 99, 2**31 - 1)):
            coordinates = keep(size, count, round, client, seed)
            assert coordinates.dtype == np.int32
            assert coordinates.shape == (count,)
            assert len(set(coordinates.tolist())) == count
            assert 0 <= coordinates.min() <= coordinates.max() < size


def test_a_full_axis_contains_all_coordinates(keep):
    for size in (1, 4, 9):
        assert sorted(keep(size, size, 5, 2, 1).tolist()) == list(range(size))


def test_coordinates_are_a_pure_function_and_equal_in_a_graph(keep):
    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)] * 3)
    def graph(round, client, seed):
        return keep.function(16, 11, round, client, seed)

    for numbers in ((0, 0, 0), (4, 2, 9), (5, 2, 9)):
        eager = keep(16, 11, *numbers)
        assert eager.tolist() == keep(16, 11, *numbers).tolist() == graph(*map(tf.constant, numbers)).numpy().tolist()
    assert graph.experimental_get_tracing_count() == 1


def test_prefix_is_nested_and_the_same_for_all_clients():
    keep = registry.find("submodels", "prefix").keep
    for count in range(1, 9):
        for numbers in ((0, 0, 0), (7, 3, 1)):
            assert keep(8, count, *numbers).numpy().tolist() == list(range(count))


def test_rolling_covers_every_coordinate_equally_in_one_turn():
    keep = registry.find("submodels", "rolling").keep
    for size, count in CASES:
        counts = np.zeros(size, int)
        for round in range(3, 3 + size):
            coordinates = keep(size, count, tf.constant(round), None, None).numpy()
            assert coordinates.tolist() == [(index - round) % size for index in range(count)]
            counts[coordinates] += 1
        assert (counts == count).all()


def test_random_differs_by_round_client_and_seed_and_is_uniform():
    keep = registry.find("submodels", "random").keep

    def draw(*numbers):
        return keep(8, 3, *(tf.constant(number) for number in numbers)).numpy()

    draws = [draw(round, client, 0) for round in range(40) for client in range(10)]
    assert all((np.diff(coordinates) > 0).all() for coordinates in draws)
    counts = np.bincount(np.concatenate(draws), minlength=8)
    np.testing.assert_allclose(counts / 400, 3 / 8, atol=5 * (3 / 8 * 5 / 8 / 400) ** 0.5)
    assert len({tuple(coordinates) for coordinates in draws}) > 45  # of 56 ways
    for other in ((1, 0, 0), (0, 1, 0), (0, 0, 1)):
        assert any(draw(*(np.add(start, other))).tolist() != draw(*start).tolist() for start in ((0, 0, 0), (5, 5, 5)))
