"""What every server step keeps, found by listing the package."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf import registry

OPTIONS = {}  # {server: options without a default}


@pytest.fixture(params=registry.names("servers"))
def apply(request):
    function, options = registry.find("servers", request.param).apply, OPTIONS.get(request.param, {})
    return lambda old, mean, covered: function(old, mean, covered, **options).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_entries_that_nobody_covers_keep_every_bit_and_the_others_follow_the_mean(apply, dtype):
    rng = np.random.default_rng(0)
    for _ in range(10):
        covered = rng.random((4, 5)) < 0.5
        old, client = rng.normal(size=(2, 4, 5)).astype(dtype)
        mean = np.where(covered, client, old)
        found = apply(tf.constant(old), tf.constant(mean), tf.constant(covered))
        assert found.dtype == dtype
        assert found[~covered].tobytes() == old[~covered].tobytes()
        assert ((found - old)[covered] * (mean - old)[covered] > 0).all()


def test_covered_may_broadcast(apply):
    old, mean = np.random.default_rng(1).normal(size=(2, 4, 5))
    for shape, covered in (((4, 1), [[True]] * 4), ((), True), ((1, 5), [[True] * 5])):
        found = apply(tf.constant(old), tf.constant(mean), tf.constant(covered, shape=shape))
        np.testing.assert_array_equal(found, apply(tf.constant(old), tf.constant(mean), tf.ones((4, 5), tf.bool)))


def test_sgd_goes_a_share_of_the_way():
    apply = registry.find("servers", "sgd").apply
    old, mean, covered = tf.constant([1.0, 1.0, 1.0]), tf.constant([3.0, 5.0, 1.0]), tf.constant([True, True, False])
    assert apply(old, mean, covered, learning_rate=0.25).numpy().tolist() == [1.5, 2.0, 1.0]
    assert apply(old, mean, covered, learning_rate=0.0).numpy().tolist() == [1.0, 1.0, 1.0]
    assert apply(old, mean, covered).numpy().tolist() == mean.numpy().tolist()


def test_replace_returns_the_mean():
    mean = tf.constant([3.0, 4.0])
    assert registry.find("servers", "replace").apply(tf.zeros(2), mean, tf.constant([True, False])) is mean
