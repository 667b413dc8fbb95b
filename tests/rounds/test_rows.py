"""Variables in rows: the part of a narrower one, its place in the wider one, and numbers of variables at their values."""

import math

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import spread
from hetero_tf.rounds.global_row import narrowed, pad_to

RNG = np.random.default_rng(0)


def shapes():
    """Pairs of a shape and one that is nowhere wider."""
    for _ in range(50):
        wide = tuple(RNG.integers(1, 6, RNG.integers(1, 5)).tolist())
        yield wide, tuple(int(RNG.integers(1, size + 1)) for size in wide)


def test_the_first_coordinates_are_cut_and_come_back_to_their_place():
    for wide, narrow in shapes():
        values = RNG.normal(size=(3, *wide))
        block = (slice(None), *map(slice, narrow))
        cut = narrowed(tf.constant(values.reshape(3, -1)), wide, narrow)
        np.testing.assert_array_equal(cut, values[block].reshape(3, -1))
        back, wanted = pad_to(cut, narrow, wide), np.zeros_like(values)
        wanted[block] = values[block]
        np.testing.assert_array_equal(back, wanted.reshape(3, -1))
        assert back.shape == (3, math.prod(wide)) and cut.shape == (3, math.prod(narrow))


def test_nothing_is_computed_where_nothing_is_cut():
    values = tf.zeros([2, 6])
    assert narrowed(values, (2, 3), (2, 3)) is values and pad_to(values, (2, 3), (2, 3)) is values


def test_numbers_of_variables_stand_at_all_of_their_values():
    for _ in range(20):
        sizes = RNG.integers(1, 7, RNG.integers(1, 6)).tolist()
        numbers = RNG.integers(0, 2, (2, len(sizes))).astype(float)
        np.testing.assert_array_equal(spread(numbers, sizes), np.repeat(numbers, sizes, axis=1))
        np.testing.assert_array_equal(spread(numbers[0] > 0, sizes), np.repeat(numbers[0] > 0, sizes))
