"""What every merge keeps, found by listing the package."""

import numpy as np
import pytest
import tensorflow as tf

from hetero_tf import registry

OPTIONS = {}  # {merge: options without a default}


@pytest.fixture(params=registry.names("merges"))
def merge(request):
    function, options = registry.find("merges", request.param).merge, OPTIONS.get(request.param, {})
    return lambda old, total, coverage: function(old, total, coverage, **options)


def values(seed, dtype):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4, 5)).astype(dtype), rng.normal(size=(4, 5)).astype(dtype), rng.random((4, 5)) < 0.5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_entries_that_nobody_covers_keep_every_bit(merge, dtype):
    for seed in range(10):
        old, client, covered = values(seed, dtype)
        old[0, 0], covered[0, 0] = -0.0, False
        found = merge(tf.constant(old), tf.constant(np.where(covered, client, 0)), tf.constant(covered.astype(dtype)))
        assert found.dtype == dtype
        assert found.shape == old.shape
        assert found.numpy()[~covered].tobytes() == old[~covered].tobytes()
        assert np.isfinite(found).all()


def test_coverage_may_broadcast(merge):
    old, client, _ = values(0, "float64")
    rows = np.asarray([[1.0], [0.0], [2.0], [0.0]])
    found = merge(tf.constant(old), tf.constant(client * rows), tf.constant(rows))
    whole = merge(tf.constant(old), tf.constant(client * rows), tf.constant(np.broadcast_to(rows, old.shape)))
    np.testing.assert_array_equal(found, whole)
    for nobody in (np.zeros(()), np.zeros((1, 1)), np.zeros((1, 5))):
        assert merge(tf.constant(old), tf.zeros_like(old), tf.constant(nobody)).numpy().tobytes() == old.tobytes()


def test_one_client_alone_is_the_result(merge):
    old, client, _ = values(1, "float64")
    np.testing.assert_array_equal(merge(tf.constant(old), tf.constant(client), tf.ones((), tf.float64)), client)


def test_masked_mean_is_the_weighted_mean_over_the_clients_that_cover_an_entry():
    mean = registry.find("merges", "masked_mean").merge
    rng = np.random.default_rng(2)
    for _ in range(20):
        clients, weights = rng.normal(size=(3, 4)), rng.random(3) + 0.1
        covers, old = rng.random((3, 4)) < 0.6, rng.normal(size=4)
        shares = covers * weights[:, None]
        found = mean(tf.constant(old), tf.constant((shares * clients).sum(0)), tf.constant(shares.sum(0)))
        for entry in range(4):
            who = covers[:, entry]
            expected = np.average(clients[who, entry], weights=weights[who]) if who.any() else old[entry]
            np.testing.assert_allclose(found[entry], expected, rtol=1e-12)
