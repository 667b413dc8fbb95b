"""Random numbers from a hash: their law, and the same numbers however a graph is run."""

import numpy as np
import oracle
import pytest
import tensorflow as tf

from hetero_tf import noise

KEYS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (7, 3, 2, 1), (7, 3, 2, 2), (2**31 - 1, 5), (-1, 5)]


def draw(key, shape=(4000,)):
    return noise.uniform(tf.constant(key, tf.int32), shape).numpy()


@pytest.mark.parametrize("key", KEYS)
def test_numbers_are_uniform_in_0_1(key):
    found = draw(key)
    assert found.dtype == np.float32
    assert found.min() >= 0
    assert found.max() < 1
    # Five standard errors of 4000 uniform draws.
    assert abs(found.mean() - 1 / 2) < 5 * (1 / 12 / 4000) ** 0.5
    assert abs(found.var() - 1 / 12) < 5 * (1 / 180 / 4000) ** 0.5
    counts = np.histogram(found, 20, (0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 50  # chi square with 19 degrees of freedom, 1 in 10,000
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.08


def test_another_key_gives_unrelated_numbers():
    found = np.stack([draw(key) for key in KEYS])
    assert np.abs(np.corrcoef(found) - np.eye(len(KEYS))).max() < 0.08


def test_neighbouring_keys_are_as_random_as_one_stream():
    first = np.asarray([draw((0, step), (1,))[0] for step in range(400)])
    assert abs(first.mean() - 1 / 2) < 5 * (1 / 12 / 400) ** 0.5
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.25
    assert len(set(first.tolist())) > 395


def test_numbers_are_a_pure_function_of_the_key_and_equal_numpy():
    for key in KEYS:
        assert draw(key, (5, 7)).tobytes() == draw(key, (5, 7)).tobytes()
        np.testing.assert_array_equal(draw(key, (5, 7)), oracle.uniform(key, (5, 7)).astype(np.float32))
        # A longer draw begins with the shorter one.
        assert draw(key, (10,))[:4].tolist() == draw(key, (4,)).tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_graph_and_xla_give_the_same_bits(compiled):
    @tf.function(jit_compile=compiled)
    def graph(key):
        return noise.uniform(key, [33])

    for key in KEYS[5:]:
        assert graph(tf.constant(key, tf.int32)).numpy().tobytes() == draw(key, (33,)).tobytes()
