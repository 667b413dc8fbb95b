"""Random numbers from a hash: their law, and the same numbers however a graph is run."""

import numpy as np
import oracle
import pytest
import tensorflow as tf

from hetero_tf.base.graph_random import bits16, uniform

KEYS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (7, 3, 2, 1), (7, 3, 2, 2), (2**31 - 1, 5), (-1, 5)]


def draw(key, shape=(4000,)):
    return uniform(tf.constant(key, tf.int32), shape).numpy()


@pytest.mark.parametrize("key", KEYS)
def test_numbers_are_uniform(key):
    numbers = draw(key)
    assert numbers.dtype == np.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # Five standard errors of 4000 uniform draws.
    assert abs(numbers.mean() - 1 / 2) < 5 * (1 / 12 / 4000) ** 0.5
    assert abs(numbers.var() - 1 / 12) < 5 * (1 / 180 / 4000) ** 0.5
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 50  # chi square with 19 degrees of freedom, 1 in 10,000
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.08


def test_numbers_are_a_pure_function_of_the_key_equal_numpy_and_are_uncorrelated():
    for key in KEYS:
        assert draw(key, (5, 7)).tobytes() == draw(key, (5, 7)).tobytes()
        np.testing.assert_array_equal(draw(key, (5, 7)), oracle.uniform(key, (5, 7)).astype(np.float32))
        # A longer draw begins with the shorter one.
        assert draw(key, (10,))[:4].tolist() == draw(key, (4,)).tolist()
    assert np.abs(np.corrcoef(np.stack([draw(key) for key in KEYS])) - np.eye(len(KEYS))).max() < 0.08


def test_batched_keys_equal_single_keys():
    keys = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 3, 4)).astype(np.int32)
    numbers = draw(keys, (5, 7))
    assert numbers.shape == (2, 3, 5, 7)
    for index in np.ndindex(2, 3):
        assert numbers[index].tobytes() == draw(keys[index], (5, 7)).tobytes()
    bits = bits16(tf.constant(keys[..., :2]), 5, 7).numpy()
    assert bits.shape == (2, 3, 5, 7)
    for index in np.ndindex(2, 3):
        assert bits[index].tobytes() == bits16(tf.constant(keys[index][:2]), 5, 7).numpy().tobytes()


def test_bits_are_splitmix64_seeded_with_the_key():
    """The first two numbers of the generator started at 0: its step is the start of our counter."""
    golden = np.frombuffer(np.uint64(0x9E3779B97F4A7C15).tobytes(), np.int32)
    words = bits16(tf.constant(golden), 2, 4).numpy().view(np.uint64)
    # Published with Vigna's splitmix64.c and used by its ports as test vectors.
    assert [int(word) for word in words.ravel()] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@pytest.mark.long
@pytest.mark.parametrize("compiled", [False, True])
def test_graph_and_xla_give_the_same_bits(compiled):
    @tf.function(jit_compile=compiled)
    def graph(key):
        return uniform(key, [33])

    for key in KEYS[5:]:
        assert graph(tf.constant(key, tf.int32)).numpy().tobytes() == draw(key, (33,)).tobytes()

    @tf.function(jit_compile=compiled)
    def bits(key):
        return bits16(key, 5, 6)

    key = tf.constant([(3, -4), (5, 6)], tf.int32)
    assert bits(key).numpy().tobytes() == bits16(key, 5, 6).numpy().tobytes()
