"""Variables in rows: cropping to a narrower variable, padding to the wider one, and numbers broadcast to values."""

import math

import numpy as np
import tensorflow as tf

from hetero_tf.models.entry_masks import broadcast_to_values
from hetero_tf.rounds.row_model import crop, pad_to

RNG = np.random.default_rng(0)


def shapes():
    """Pairs of a shape and a shape that is not larger in any dimension."""
    for _ in range(50):
        wide = tuple(RNG.integers(1, 6, RNG.integers(1, 5)).tolist())
        yield wide, tuple(int(RNG.integers(1, size + 1)) for size in wide)


def test_crop_and_pad_to_are_inverse():
    for wide, narrow in shapes():
        values = RNG.normal(size=(3, *wide))
        block = (slice(None), *map(slice, narrow))
        cut = crop(tf.constant(values.reshape(3, -1)), wide, narrow)
        np.testing.assert_array_equal(cut, values[block].reshape(3, -1))
        back, expected = pad_to(cut, narrow, wide), np.zeros_like(values)
        expected[block] = values[block]
        np.testing.assert_array_equal(back, expected.reshape(3, -1))
        assert back.shape == (3, math.prod(wide)) and cut.shape == (3, math.prod(narrow))


def test_nothing_is_computed_where_nothing_is_cut():
    values = tf.zeros([2, 6])
    assert crop(values, (2, 3), (2, 3)) is values and pad_to(values, (2, 3), (2, 3)) is values


def test_numbers_of_variables_are_broadcast_to_their_values():
    for _ in range(20):
        sizes = RNG.integers(1, 7, RNG.integers(1, 6)).tolist()
        numbers = RNG.integers(0, 2, (2, len(sizes))).astype(float)
        np.testing.assert_array_equal(broadcast_to_values(numbers, sizes), np.repeat(numbers, sizes, axis=1))
        np.testing.assert_array_equal(broadcast_to_values(numbers[0] > 0, sizes), np.repeat(numbers[0] > 0, sizes))
