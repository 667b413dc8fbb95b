"""Sub-models: coordinates of single clients."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.testing.cut_checks import AXES, KEYS, SHAPE, draw_weights, masked
from hetero_tf.testing.subject import Subject


def test_prefix_is_nested_and_the_same_for_all_clients():
    keep = registry.find("submodels", "prefix").keep
    for count in range(1, 9):
        for numbers in ((0, 0, 0), (7, 3, 1)):
            assert keep(8, count, *numbers).numpy().tolist() == list(range(count))


def test_rolling_covers_every_coordinate_equally_in_one_turn():
    keep = registry.find("submodels", "rolling").keep
    for size, count in AXES:
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


def test_fiarse_keeps_its_threshold_in_a_round_and_masks_the_current_weights():
    start = tf.constant([[0.0, 4.0, -3.0, 2.0, -1.0]], tf.float64)
    module = registry.find("masks", "fiarse")
    state = module.prepare(start, KEYS[:1], tf.constant([False, True, True, True, True]), 2)
    assert state.numpy().tolist() == [[0, 3, 3, 3, 3]]
    later = tf.constant([[0.0, 2.9, -3.0, 3.5, -1.0]], tf.float64)
    assert module.mask(later, state).numpy().tolist() == [[1, 0, 1, 1, 0]]
    assert module.counts(later, start, state).numpy().tolist() == [[False, True, False, True, False]]


@pytest.mark.parametrize("surrogate", [True, False])
def test_the_gradient_of_fiarse_is_the_published_one(surrogate):
    weights, slope = draw_weights(), draw_weights(seed=3)
    subject = Subject("masks", "fiarse", {"surrogate": surrogate})
    with tf.GradientTape() as tape:
        tape.watch(weights)
        mask, state = masked(subject, weights, 0.5)
        value = tf.reduce_sum(weights * mask * slope)
    size, threshold = np.abs(weights), np.broadcast_to(state, SHAPE)
    factor = 1 + 2 * threshold * size / (size + threshold) ** 2 if surrogate else 1
    np.testing.assert_allclose(tape.gradient(value, weights), slope * mask * factor, rtol=1e-12)
