"""Sub-models: coordinates of single clients."""

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry

CASES = [(1, 1), (5, 1), (5, 3), (5, 5), (16, 1), (16, 11)]


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
